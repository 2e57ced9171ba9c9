/*-------------------------------------------------------------------------
 *
 * als_data.h
 *	  Interactions for the benchmark of trainings, like those of MovieLens 20M:
 *	  20,000,263 different pairs of 138,493 users and 26,744 items.
 *
 * The number of a user's pairs is log-normal (median 68, at least 20, at most
 * 9,254, as in the real set).  The popularity of items is p(rank) ~ (rank +
 * q)^-s; numbers of items are shuffled.  s = 1.9 and q = 110 come near to the
 * real set, and s = 1, q = 0 is Zipf's law, where the first items have nearly
 * every user.  Confidences are 1.5 to 6.
 *
 * Numbers come from splitmix64 counters, so that the data are the same each
 * time; checksum() says whether the mathematical library agrees.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ALS_DATA_H
#define ALS_DATA_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

namespace als_data
{

static const int ALL_USERS = 138493;
static const int ALL_ITEMS = 26744;
static const int64_t ALL_PAIRS = 20000263;
static const int LEAST_PAIRS = 20;
static const int MOST_PAIRS = 9254;

static inline uint64_t
splitmix64(uint64_t x)
{
	x += UINT64_C(0x9E3779B97F4A7C15);
	x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
	return x ^ (x >> 31);
}

struct generator
{
	uint64_t	key;
	uint64_t	counter = 0;

	explicit generator(uint64_t seed): key(splitmix64(seed))
	{
	}

	uint64_t
	next()
	{
		return splitmix64(key + counter++);
	}

	double
	uniform()
	{
		return (double) (next() >> 11) / 9007199254740992.0;
	}
};

struct matrix
{
	int			users = 0;
	int			items = 0;
	std::vector<int64_t> starts;	/* [users + 1] */
	std::vector<int32_t> others;	/* ascending in each row */
	std::vector<float> confidences;
};

/* How many pairs each user has; `most` is the most of one user */
static inline std::vector<int>
count_pairs(int users, int64_t pairs, int most, uint64_t seed)
{
	const double median = 68;
	const double sigma = 1.227;
	generator	g(seed);
	std::vector<double> normal(users);
	std::vector<int> counts(users);
	double		low = std::log(median) - 3;
	double		high = std::log(median) + 3;
	int64_t		sum;
	auto		count = [&](double mean, int u)
	{
		return (int) std::min<double>(most, std::max<double>(LEAST_PAIRS, std::floor(std::exp(mean + sigma * normal[u]) + 0.5)));
	};

	for (double &z : normal)
	{
		double		a = g.uniform();
		double		b = g.uniform();

		z = std::sqrt(-2.0 * std::log(1.0 - a)) * std::cos(6.283185307179586 * b);
	}
	for (int i = 0; i < 60; i++)
	{
		double		middle = 0.5 * (low + high);

		sum = 0;
		for (int u = 0; u < users; u++)
			sum += count(middle, u);
		(sum > pairs ? high : low) = middle;
	}
	sum = 0;
	for (int u = 0; u < users; u++)
		sum += counts[u] = count(low, u);
	/* the rest, one by one */
	for (int u = 0; sum != pairs; u = (u + 1) % users)
		if (sum < pairs && counts[u] < most)
		{
			counts[u]++;
			sum++;
		}
		else if (sum > pairs && counts[u] > LEAST_PAIRS)
		{
			counts[u]--;
			sum--;
		}
	return counts;
}

/* The items by rank */
static inline std::vector<int>
shuffled_items(int items, uint64_t seed)
{
	std::vector<int> order(items);
	generator	g(seed);

	std::iota(order.begin(), order.end(), 0);
	for (int i = items - 1; i > 0; i--)
		std::swap(order[i], order[g.next() % (uint64_t) (i + 1)]);
	return order;
}

/* Draws ranks of items, by their popularity */
struct popularity
{
	static const int BUCKETS = 1 << 16;
	std::vector<double> sums;
	std::vector<int> first;		/* of each bucket of probabilities */

	popularity(int items, double s, double q): sums(items), first(BUCKETS + 1)
	{
		double		sum = 0;

		for (int i = 0; i < items; i++)
			sums[i] = sum += std::pow(i + 1.0 + q, -s);
		for (double &x : sums)
			x /= sum;
		for (int b = 0, i = 0; b <= BUCKETS; b++)
		{
			while (i < items - 1 && sums[i] < (double) b / BUCKETS)
				i++;
			first[b] = i;
		}
	}

	int
	draw(generator &g) const
	{
		double		x = g.uniform();
		int			i = first[(int) (x * BUCKETS)];

		while (i < (int) sums.size() - 1 && sums[i] <= x)
			i++;
		return i;
	}
};

static inline float
confidence_of(int user, int item)
{
	return 1.0f + 0.5f * (float) (1 + splitmix64(((uint64_t) user << 32) ^ (uint64_t) item) % 10);
}

/*
 * The interactions; scale: the part of the users and of the pairs.  There are
 * fewer items then, too, unless all_items.
 */
static inline matrix
generate(bool zipf, double scale, bool all_items = false)
{
	const uint64_t seed = 20;
	matrix		m;
	int64_t		pairs = scale == 1 ? ALL_PAIRS : (int64_t) (ALL_PAIRS * scale);
	std::vector<int> counts;
	std::vector<int> order;
	std::vector<int> last;		/* the last user that has drawn an item */

	m.users = scale == 1 ? ALL_USERS : std::max(1, (int) (ALL_USERS * scale));
	m.items = all_items || scale == 1 ? ALL_ITEMS : std::max(200, (int) (ALL_ITEMS * std::sqrt(scale)));
	counts = count_pairs(m.users, pairs, std::min(MOST_PAIRS, m.items / 2), seed);
	order = shuffled_items(m.items, seed + 1);
	last.assign(m.items, -1);
	m.starts.push_back(0);
	m.others.reserve(pairs);
	popularity	popular(m.items, zipf ? 1.0 : 1.9, zipf ? 0 : 110);
	for (int u = 0; u < m.users; u++)
	{
		generator	g(seed * 1000003 + 7 + u);
		size_t		begin = m.others.size();

		while (m.others.size() < begin + counts[u])
		{
			int			rank = popular.draw(g);

			if (last[rank] == u)
				continue;
			last[rank] = u;
			m.others.push_back(order[rank]);
		}
		std::sort(m.others.begin() + begin, m.others.end());
		for (size_t i = begin; i < m.others.size(); i++)
			m.confidences.push_back(confidence_of(u, m.others[i]));
		m.starts.push_back((int64_t) m.others.size());
	}
	return m;
}

static inline matrix
transpose(const matrix &from)
{
	matrix		to;
	std::vector<int64_t> next;

	to.users = from.items;
	to.items = from.users;
	to.starts.assign(to.users + 1, 0);
	to.others.resize(from.others.size());
	to.confidences.resize(from.others.size());
	for (int32_t other : from.others)
		to.starts[other + 1]++;
	std::partial_sum(to.starts.begin(), to.starts.end(), to.starts.begin());
	next.assign(to.starts.begin(), to.starts.end() - 1);
	for (int u = 0; u < from.users; u++)
		for (int64_t i = from.starts[u]; i < from.starts[u + 1]; i++)
		{
			int64_t		at = next[from.others[i]]++;

			to.others[at] = u;
			to.confidences[at] = from.confidences[i];
		}
	return to;
}

static inline uint64_t
checksum(const matrix &m)
{
	uint64_t	h = UINT64_C(1469598103934665603);

	for (int64_t x : m.starts)
		h = splitmix64(h ^ (uint64_t) x);
	for (int32_t x : m.others)
		h = splitmix64(h ^ (uint64_t) x);
	for (float f : m.confidences)
	{
		uint32_t	bits;

		memcpy(&bits, &f, sizeof(bits));
		h = splitmix64(h ^ bits);
	}
	return h;
}

}

#endif							/* ALS_DATA_H */
