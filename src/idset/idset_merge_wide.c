/*-------------------------------------------------------------------------
 *
 * idset_merge_wide.c
 *	  The union and the symmetric difference of long arrays of wide ids.
 *
 * A network of minima and maxima merges two blocks of 8 ascending ids without
 * a branch.  The lower half goes on, the upper half is merged with the next
 * block: that of the array whose next id is lower.  What comes is both arrays
 * in order, where ids of both stand side by side.  Of these the union drops
 * one, and the symmetric difference both.  For that it has to know the next
 * id.  So a block waits until the one behind it is known.
 *
 * When one array has no whole block any more, the rest is merged id by id.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "idset/idset_merge.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define TARGET			__attribute__((target("avx2,popcnt")))
#define BLOCK_IDS		MERGE_BLOCK_IDS

/* The merge of both arrays, as far as it has come */
typedef struct MergeStream
{
	const uint32 *a;
	const uint32 *b;
	uint32		na;
	uint32		nb;
	uint32		i;				/* the next id of a, and of b */
	uint32		j;
	__m256i		before;			/* the block before the one that waits */
	__m256i		waiting;
	__m256i		upper;			/* the upper half of the last merge */
	MergePositions *positions;
	bool		both;			/* keep one of ids that both have */
	uint32	   *out;
	uint32		n;				/* ids in out[] */
} MergeStream;

TARGET
static inline __m256i
load_block(const uint32 *ids)
{
	return _mm256_loadu_si256((const __m256i *) ids);
}

/* Sort a block that ascends and then descends, or the other way round */
TARGET
static inline __m256i
sort_block(__m256i x)
{
	__m256i		y = _mm256_permute2x128_si256(x, x, 1);

	x = _mm256_blend_epi32(_mm256_min_epu32(x, y), _mm256_max_epu32(x, y), 0xF0);
	y = _mm256_shuffle_epi32(x, 0x4E);
	x = _mm256_blend_epi32(_mm256_min_epu32(x, y), _mm256_max_epu32(x, y), 0xCC);
	y = _mm256_shuffle_epi32(x, 0xB1);
	return _mm256_blend_epi32(_mm256_min_epu32(x, y), _mm256_max_epu32(x, y), 0xAA);
}

/* Merge a block into the stream; returns the lower half */
TARGET
static inline __m256i
merge_block(MergeStream *s, __m256i block)
{
	__m256i		turned = _mm256_permutevar8x32_epi32(block, _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0));
	__m256i		lower = _mm256_min_epu32(s->upper, turned);

	s->upper = sort_block(_mm256_max_epu32(s->upper, turned));
	return sort_block(lower);
}

/* A bit for each id of x that equals the id before it; `before` comes first */
TARGET
static inline int
equal_to_last(__m256i before, __m256i x)
{
	__m256i		turn = _mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6);
	__m256i		last = _mm256_blend_epi32(_mm256_permutevar8x32_epi32(x, turn),
										  _mm256_permutevar8x32_epi32(before, turn), 1);

	return _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(x, last)));
}

/* Write what is to be kept of the block that waits; `next` waits then */
TARGET
static inline void
put_block(MergeStream *s, __m256i next)
{
	int			dropped = equal_to_last(s->before, s->waiting);
	int			again = equal_to_last(s->waiting, next);
	int			kept;

	if (!s->both)
		dropped |= dropped >> 1 | (again & 1) << 7;
	kept = ~dropped & 0xFF;
	_mm256_storeu_si256((__m256i *) (s->out + s->n),
						_mm256_permutevar8x32_epi32(s->waiting,
													_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *) s->positions[kept]))));
	s->n += __builtin_popcount(kept);
	s->before = s->waiting;
	s->waiting = next;
}

/* Merge as long as both arrays have a block */
TARGET
static void
merge_stream(MergeStream *s)
{
	s->upper = load_block(s->a);
	s->waiting = merge_block(s, load_block(s->b));
	/* no id is equal to its complement */
	s->before = _mm256_set1_epi32(~_mm256_extract_epi32(s->waiting, 0));
	s->i = s->j = BLOCK_IDS;
	while (s->i + BLOCK_IDS <= s->na && s->j + BLOCK_IDS <= s->nb)
	{
		uint32		of_a = s->a[s->i] <= s->b[s->j];
		const uint32 *from = of_a ? s->a + s->i : s->b + s->j;

		s->i += BLOCK_IDS * of_a;
		s->j += BLOCK_IDS * (1 - of_a);
		put_block(s, merge_block(s, load_block(from)));
	}
}

/* Insert ids into an ascending array of n; returns the new number */
static uint32
insert_ids(uint32 *to, uint32 n, const uint32 *ids, uint32 nids)
{
	for (uint32 k = 0; k < nids; k++)
	{
		uint32		at = n++;

		for (; at > 0 && to[at - 1] > ids[k]; at--)
			to[at] = to[at - 1];
		to[at] = ids[k];
	}
	return n;
}

/* Merge two ascending arrays, the first of which may have ids twice */
static void
merge_rest(MergeStream *s, const uint32 *few, uint32 nfew, const uint32 *rest, uint32 nrest, uint32 last)
{
	uint32		i = 0;
	uint32		j = 0;

	while (i < nfew)
	{
		uint32		id = j < nrest && rest[j] < few[i] ? rest[j] : few[i];
		uint32		times = 0;

		for (; i < nfew && few[i] == id; i++)
			times++;
		for (; j < nrest && rest[j] == id; j++)
			times++;
		/* what equals the last id of a block was dealt with there */
		if (id != last && (s->both || times == 1))
			s->out[s->n++] = id;
	}
	memcpy(s->out + s->n, rest + j, (nrest - j) * sizeof(uint32));
	s->n += nrest - j;
}

/* Merge what the stream has not written, and the rest of both arrays */
TARGET
static void
end_stream(MergeStream *s)
{
	bool		short_a = s->na - s->i < BLOCK_IDS;
	uint32		few[3 * BLOCK_IDS];
	uint32		n = 2 * BLOCK_IDS;

	_mm256_storeu_si256((__m256i *) few, s->waiting);
	_mm256_storeu_si256((__m256i *) (few + BLOCK_IDS), s->upper);
	if (short_a)
		n = insert_ids(few, n, s->a + s->i, s->na - s->i);
	else
		n = insert_ids(few, n, s->b + s->j, s->nb - s->j);
	merge_rest(s, few, n, short_a ? s->b + s->j : s->a + s->i,
			   short_a ? s->nb - s->j : s->na - s->i,
			   _mm256_extract_epi32(s->before, BLOCK_IDS - 1));
}

uint32
idset_merge_network(const uint32 *a, uint32 na, const uint32 *b, uint32 nb, int keep,
					MergePositions *positions, uint32 *out)
{
	MergeStream s = {
		.a = a, .b = b, .na = na, .nb = nb, .positions = positions,
		.both = (keep & MERGE_BOTH) != 0, .out = out
	};

	merge_stream(&s);
	end_stream(&s);
	return s.n;
}

#else

uint32
idset_merge_network(const uint32 *a, uint32 na, const uint32 *b, uint32 nb, int keep,
					MergePositions *positions, uint32 *out)
{
	pg_unreachable();
}

#endif
