/*-------------------------------------------------------------------------
 *
 * als_reference.h
 *	  Alternating least squares with dense matrices in float64, word for word
 *	  as core/als.h defines it.  Slow and obvious: what the engine does is
 *	  compared with it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ALS_REFERENCE_H
#define ALS_REFERENCE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define REF_MOST	64			/* users, items and factors */

typedef struct als_reference
{
	int			users;
	int			items;
	int			factors;
	int			cg_steps;
	double		regularization;
	double		alpha;
	double		weight[REF_MOST][REF_MOST]; /* of users and items; 0: none */
	double		x[REF_MOST][REF_MOST];	/* factors of users */
	double		y[REF_MOST][REF_MOST];	/* and of items */
} als_reference;

static inline double
ref_weight(const als_reference *r, int items, int row, int other)
{
	return items ? r->weight[other][row] : r->weight[row][other];
}

static inline double
ref_confidence(const als_reference *r, double weight)
{
	return weight == 0 ? 1 : r->alpha * fabs(weight);
}

static inline double
ref_dot(const double *a, const double *b, int n)
{
	double		sum = 0;

	for (int i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

/*
 * The system of one row: A = sum of c y y' + regularization I and b = sum of
 * c p y, over all pairs of the row
 */
static inline void
ref_system(const als_reference *r, int items, int row, double a[REF_MOST][REF_MOST], double *b)
{
	int			nother = items ? r->users : r->items;

	memset(b, 0, REF_MOST * sizeof(*b));
	for (int i = 0; i < r->factors; i++)
		for (int j = 0; j < r->factors; j++)
			a[i][j] = i == j ? r->regularization : 0;
	for (int o = 0; o < nother; o++)
	{
		const double *y = items ? r->x[o] : r->y[o];
		double		w = ref_weight(r, items, row, o);
		double		c = ref_confidence(r, w);

		for (int i = 0; i < r->factors; i++)
		{
			for (int j = 0; j < r->factors; j++)
				a[i][j] += c * y[i] * y[j];
			b[i] += w > 0 ? c * y[i] : 0;
		}
	}
}

/* v = A u */
static inline void
ref_apply(int n, double a[REF_MOST][REF_MOST], const double *u, double *v)
{
	for (int i = 0; i < n; i++)
		v[i] = ref_dot(a[i], u, n);
}

/* Some steps of conjugate gradient, from the present factor */
static inline void
ref_cg(const als_reference *ref, double a[REF_MOST][REF_MOST], const double *b, double *x)
{
	int			n = ref->factors;
	double		r[REF_MOST];
	double		p[REF_MOST];
	double		ap[REF_MOST];
	double		rr;

	ref_apply(n, a, x, ap);
	for (int i = 0; i < n; i++)
		p[i] = r[i] = b[i] - ap[i];
	rr = ref_dot(r, r, n);
	for (int step = 0; step < ref->cg_steps && rr >= 1e-20; step++)
	{
		double		before = rr;
		double		length;

		ref_apply(n, a, p, ap);
		length = rr / ref_dot(p, ap, n);
		for (int i = 0; i < n; i++)
		{
			x[i] += length * p[i];
			r[i] -= length * ap[i];
		}
		rr = ref_dot(r, r, n);
		for (int i = 0; i < n; i++)
			p[i] = r[i] + rr / before * p[i];
	}
}

/* The exact solution, by elimination with pivots */
static inline void
ref_solve(int n, double a[REF_MOST][REF_MOST], double *b, double *x)
{
	for (int k = 0; k < n; k++)
	{
		int			best = k;

		for (int i = k + 1; i < n; i++)
			if (fabs(a[i][k]) > fabs(a[best][k]))
				best = i;
		for (int j = 0; j < n; j++)
		{
			double		swap = a[k][j];

			a[k][j] = a[best][j];
			a[best][j] = swap;
		}
		x[0] = b[k];
		b[k] = b[best];
		b[best] = x[0];
		for (int i = k + 1; i < n; i++)
		{
			double		factor = a[i][k] / a[k][k];

			for (int j = k; j < n; j++)
				a[i][j] -= factor * a[k][j];
			b[i] -= factor * b[k];
		}
	}
	for (int i = n - 1; i >= 0; i--)
	{
		x[i] = b[i];
		for (int j = i + 1; j < n; j++)
			x[i] -= a[i][j] * x[j];
		x[i] /= a[i][i];
	}
}

/* An iteration: all users, then all items; exact or by conjugate gradient */
static inline void
ref_iterate(als_reference *r, int exact)
{
	static double a[REF_MOST][REF_MOST];
	double		b[REF_MOST];

	for (int items = 0; items < 2; items++)
		for (int row = 0; row < (items ? r->items : r->users); row++)
		{
			double	   *x = items ? r->y[row] : r->x[row];

			ref_system(r, items, row, a, b);
			if (exact)
				ref_solve(r->factors, a, b, x);
			else
				ref_cg(r, a, b, x);
		}
}

/* The loss, by its definition */
static inline double
ref_loss(const als_reference *r)
{
	double		sum = 0;
	double		confidence = 0;

	for (int u = 0; u < r->users; u++)
		sum += r->regularization * ref_dot(r->x[u], r->x[u], r->factors);
	for (int i = 0; i < r->items; i++)
		sum += r->regularization * ref_dot(r->y[i], r->y[i], r->factors);
	for (int u = 0; u < r->users; u++)
		for (int i = 0; i < r->items; i++)
		{
			double		c = ref_confidence(r, r->weight[u][i]);
			double		error = (r->weight[u][i] > 0 ? 1 : 0) - ref_dot(r->x[u], r->y[i], r->factors);

			sum += c * error * error;
			confidence += c;
		}
	return sum / confidence;
}

#endif							/* ALS_REFERENCE_H */
