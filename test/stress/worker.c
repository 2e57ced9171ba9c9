/*
 * worker.c
 *	  Random numbers and scratch memory of a thread.
 */
#include "stress.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The next random number of the thread (splitmix64) */
static uint64_t
next_random(struct worker *w)
{
	uint64_t	z = (w->random += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* 0 to n - 1 */
uint32_t
below(struct worker *w, uint32_t n)
{
	return (next_random(w) >> 32) * n >> 32;
}

int
between(struct worker *w, int least, int most)
{
	return least + (int) below(w, most - least + 1);
}

bool
chance(struct worker *w, int percent)
{
	return (int) below(w, 100) < percent;
}

const char *
one_of(struct worker *w, const char *const *words, int n)
{
	return words[below(w, n)];
}

/* Wait for some time, but not when the run is over */
void
nap(struct worker *w, int least_ms, int most_ms)
{
	double		until = now() + between(w, least_ms, most_ms) / 1000.0;

	while (!stopping && now() < until)
		usleep(5000);
}

/* A string that lives until forget(), given as malloc() made it */
char *
keep(struct worker *w, char *text)
{
	if (text == NULL || w->n_scratch == MAX_SCRATCH)
	{
		fprintf(stderr, "stress: out of memory\n");
		abort();
	}
	return w->scratch[w->n_scratch++] = text;
}

/* The same, formatted */
char *
say(struct worker *w, const char *format,...)
{
	va_list		args;
	char	   *text;

	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	return keep(w, text);
}

/* The contents of a small file; an empty string if it cannot be read */
char *
file_text(struct worker *w, const char *path)
{
	char		text[8000];
	FILE	   *file = fopen(path, "r");
	size_t		n = 0;

	if (file)
	{
		n = fread(text, 1, sizeof(text) - 1, file);
		fclose(file);
	}
	text[n] = '\0';
	return keep(w, strdup(text));
}

/* Free the strings of one step of the thread's work */
void
forget(struct worker *w)
{
	while (w->n_scratch > 0)
		free(w->scratch[--w->n_scratch]);
	w->parameter = NULL;
	w->unpopulated = false;
}
