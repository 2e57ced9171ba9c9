/*-------------------------------------------------------------------------
 *
 * idset_merge.c
 *	  Merges two ascending arrays of ids: intersection, union, difference and
 *	  symmetric difference.
 *
 * The lengths of the arrays choose the way:
 *
 * One array is much longer: each id of the short one is searched in the long
 * one, by a galloping search from the position of the last id.  What lies
 * between is copied in one piece.
 *
 * Both are short: an ordinary merge, without a branch that depends on the
 * ids.  Ids come in no pattern, so a processor mispredicts such a branch at
 * every second id, which takes longer than all else.
 *
 * Both are long, for the intersection and the difference: blocks of 8 ids,
 * if the processor has AVX2.  Each id of a block is compared with all of
 * another one: narrow ids by one instruction, wide ones by turning one block
 * seven times.  The block with the lower last id is done with, and the next
 * block of that array takes its place.
 *
 * Both are long, for the union and the symmetric difference of wide ids: a
 * network that merges blocks (idset_merge_wide.c).
 *
 * Both are long and dense, for all else and on other processors: a bitmap of
 * all 65,536 narrow ids.  The ids are marked in it, and what is wanted is
 * read from it byte by byte, where a table has the positions of the bits of
 * each byte.  To mark an id means to read and write the word that the last
 * id has just written.  So four quarters of an array are marked in turn.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "idset/idset_merge.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define HAVE_BLOCKS
#include <immintrin.h>
#endif

/* Both arrays have at least this many ids: compare blocks */
#define LEAST_BLOCK_IDS	32

/*
 * Both arrays together have at least this many ids: use a bitmap instead of
 * an ordinary merge.  To look ids up in it takes less than to read it.
 */
#define LEAST_LOOKUP_IDS	1024
#define LEAST_BITMAP_IDS	4096
#define BITMAP_WORDS	((IDSET_MAX_NARROW_ID + 1) / 64)

#define BLOCK_IDS		MERGE_BLOCK_IDS

bool		idset_merge_no_blocks = false;

/* A block of ids, which the compiler keeps in one register if it can */
typedef uint16 IdBlock __attribute__((vector_size(BLOCK_IDS * sizeof(uint16))));

/* The positions of the bits that are set in each byte, and their number */
static uint16 bit_positions[256][BLOCK_IDS];
static uint8 bit_counts[256];

/* Fill the table of positions, once in a process */
static void
need_bit_positions(void)
{
	if (bit_counts[255] != 0)
		return;
	for (int byte = 0; byte < 256; byte++)
	{
		int			n = 0;

		for (int bit = 0; bit < BLOCK_IDS; bit++)
			if (byte & (1 << bit))
				bit_positions[byte][n++] = bit;
		bit_counts[byte] = n;
	}
}

/* ---- blocks ---- */

#ifdef HAVE_BLOCKS

static bool
can_compare_blocks(void)
{
	return !idset_merge_no_blocks && __builtin_cpu_supports("avx2") &&
		__builtin_cpu_supports("popcnt");
}

/* A bit for each id of a block x that is one of the ids of a block y */
__attribute__((target("avx2,popcnt")))
static inline int
find_narrow(const uint16 *x, const uint16 *y)
{
	return _mm_cvtsi128_si32(_mm_cmpestrm(_mm_loadu_si128((const __m128i *) y), BLOCK_IDS,
										  _mm_loadu_si128((const __m128i *) x), BLOCK_IDS,
										  _SIDD_UWORD_OPS | _SIDD_CMP_EQUAL_ANY |
										  _SIDD_BIT_MASK));
}

/* The ids of x that are where those of y are, or of y turned within halves */
__attribute__((target("avx2,popcnt")))
static inline __m256i
find_in_halves(__m256i x, __m256i y)
{
	__m256i		one = _mm256_or_si256(_mm256_cmpeq_epi32(x, y),
									  _mm256_cmpeq_epi32(x, _mm256_shuffle_epi32(y, 0x39)));
	__m256i		two = _mm256_or_si256(_mm256_cmpeq_epi32(x, _mm256_shuffle_epi32(y, 0x4E)),
									  _mm256_cmpeq_epi32(x, _mm256_shuffle_epi32(y, 0x93)));

	return _mm256_or_si256(one, two);
}

__attribute__((target("avx2,popcnt")))
static inline int
find_wide(const uint32 *x, const uint32 *y)
{
	__m256i		ids = _mm256_loadu_si256((const __m256i *) x);
	__m256i		others = _mm256_loadu_si256((const __m256i *) y);
	__m256i		exchanged = _mm256_permute2x128_si256(others, others, 1);
	__m256i		found = _mm256_or_si256(find_in_halves(ids, others),
										find_in_halves(ids, exchanged));

	return _mm256_movemask_ps(_mm256_castsi256_ps(found));
}

/* Write those ids of a block whose bits are set to out[] */
__attribute__((target("avx2,popcnt")))
static inline void
write_narrow(const uint16 *ids, int picked, uint16 *out)
{
	__m128i		block = _mm_loadu_si128((const __m128i *) ids);
	__m128i		positions = _mm_loadu_si128((const __m128i *) bit_positions[picked]);
	__m128i		bytes = _mm_add_epi16(_mm_mullo_epi16(positions, _mm_set1_epi16(0x0202)),
									  _mm_set1_epi16(0x0100));

	_mm_storeu_si128((__m128i *) out, _mm_shuffle_epi8(block, bytes));
}

__attribute__((target("avx2,popcnt")))
static inline void
write_wide(const uint32 *ids, int picked, uint32 *out)
{
	__m256i		block = _mm256_loadu_si256((const __m256i *) ids);
	__m128i		positions = _mm_loadu_si128((const __m128i *) bit_positions[picked]);

	_mm256_storeu_si256((__m256i *) out,
						_mm256_permutevar8x32_epi32(block, _mm256_cvtepu16_epi32(positions)));
}

/*
 * Intersection (keep is MERGE_BOTH) or difference (MERGE_ONLY_A) as far as
 * there are whole blocks.  *from_a and *from_b are where the rest begins.
 */
__attribute__((target("avx2,popcnt")))
static pg_attribute_always_inline uint32
merge_blocks(const void *a, uint32 na, const void *b, uint32 nb, bool wide, int keep, bool write,
			 void *out, uint32 *from_a, uint32 *from_b)
{
	int			flip = keep == MERGE_BOTH ? 0 : 0xFF;
	int			found = 0;
	uint32		n = 0;
	uint32		i = 0;
	uint32		j = 0;

	while (i + BLOCK_IDS <= na && j + BLOCK_IDS <= nb)
	{
		uint32		last_x = idset_id_at(a, wide, i + BLOCK_IDS - 1);
		uint32		last_y = idset_id_at(b, wide, j + BLOCK_IDS - 1);
		uint32		x_done = last_x <= last_y;
		uint32		y_done = last_y <= last_x;

		found |= wide ? find_wide((const uint32 *) a + i, (const uint32 *) b + j) :
			find_narrow((const uint16 *) a + i, (const uint16 *) b + j);
		if (write && wide)
			write_wide((const uint32 *) a + i, found ^ flip, (uint32 *) out + n);
		else if (write)
			write_narrow((const uint16 *) a + i, found ^ flip, (uint16 *) out + n);
		n += __builtin_popcount(found ^ flip) & -x_done;
		found &= x_done - 1;
		i += BLOCK_IDS * x_done;
		j += BLOCK_IDS * y_done;
	}
	*from_a = i;
	*from_b = j;
	return n;
}

/* The same, compiled for each case */
__attribute__((target("avx2,popcnt")))
static pg_attribute_always_inline uint32
merge_blocks_each(const void *a, uint32 na, const void *b, uint32 nb, bool wide, int keep,
				  void *out, uint32 *from_a, uint32 *from_b)
{
	if (keep == MERGE_ONLY_A)
		return merge_blocks(a, na, b, nb, wide, MERGE_ONLY_A, true, out, from_a, from_b);
	if (out == NULL)
		return merge_blocks(a, na, b, nb, wide, MERGE_BOTH, false, out, from_a, from_b);
	return merge_blocks(a, na, b, nb, wide, MERGE_BOTH, true, out, from_a, from_b);
}

__attribute__((target("avx2,popcnt")))
static uint32
merge_whole_blocks(const void *a, uint32 na, const void *b, uint32 nb, bool wide, int keep,
				   void *out, uint32 *from_a, uint32 *from_b)
{
	return wide ? merge_blocks_each(a, na, b, nb, true, keep, out, from_a, from_b) :
		merge_blocks_each(a, na, b, nb, false, keep, out, from_a, from_b);
}

#else

static bool
can_compare_blocks(void)
{
	return false;
}

static uint32
merge_whole_blocks(const void *a, uint32 na, const void *b, uint32 nb, bool wide, int keep,
				   void *out, uint32 *from_a, uint32 *from_b)
{
	return *from_a = *from_b = 0;
}

#endif

/* ---- bitmaps ---- */

static inline void
flip_bit(uint64 *bitmap, uint16 id)
{
	bitmap[id / 64] ^= UINT64CONST(1) << (id % 64);
}

/* Flip the bits of all ids; four quarters of the array in turn */
static void
flip_bits(uint64 *bitmap, const uint16 *ids, uint32 n)
{
	uint32		quarter = n / 4;

	for (uint32 i = 0; i < quarter; i++)
	{
		flip_bit(bitmap, ids[i]);
		flip_bit(bitmap, ids[quarter + i]);
		flip_bit(bitmap, ids[2 * quarter + i]);
		flip_bit(bitmap, ids[3 * quarter + i]);
	}
	for (uint32 i = 4 * quarter; i < n; i++)
		flip_bit(bitmap, ids[i]);
}

/*
 * Write the ids whose bits are set.  Returns their number.  Every byte writes
 * a whole block: to ask which are zero takes longer.
 */
static uint32
read_bitmap(const uint64 *bitmap, uint16 *out)
{
	uint32		n = 0;

	for (uint32 word = 0; word < BITMAP_WORDS; word++)
	{
		uint64		bits = bitmap[word];

		for (uint32 byte = 0; byte < 8; byte++, bits >>= 8)
		{
			IdBlock		ids;

			memcpy(&ids, bit_positions[bits & 0xFF], sizeof(ids));
			ids += (uint16) (word * 64 + byte * 8);
			memcpy(out + n, &ids, sizeof(ids));
			n += bit_counts[bits & 0xFF];
		}
	}
	return n;
}

/* Those ids of a whose bits are, or are not, as `wanted` */
static uint32
filter_by_bitmap(const uint64 *bitmap, const uint16 *a, uint32 na, uint32 wanted, uint16 *out)
{
	uint32		n = 0;

	for (uint32 i = 0; i < na; i++)
	{
		out[n] = a[i];
		n += ((bitmap[a[i] / 64] >> (a[i] % 64)) & 1) == wanted;
	}
	return n;
}

/* The number of ids of a whose bits are set */
static uint32
count_in_bitmap(const uint64 *bitmap, const uint16 *a, uint32 na)
{
	uint32		n = 0;

	for (uint32 i = 0; i < na; i++)
		n += (bitmap[a[i] / 64] >> (a[i] % 64)) & 1;
	return n;
}

/* Merge by a bitmap */
static uint32
merge_by_bitmap(const uint16 *a, uint32 na, const uint16 *b, uint32 nb, int keep, uint16 *out)
{
	uint64		bitmap[BITMAP_WORDS] = {0};

	flip_bits(bitmap, b, nb);
	if (out == NULL)
		return count_in_bitmap(bitmap, a, na);
	if (keep == MERGE_BOTH || keep == MERGE_ONLY_A)
		return filter_by_bitmap(bitmap, a, na, keep == MERGE_BOTH, out);
	need_bit_positions();
	if (keep & MERGE_BOTH)
	{
		/* what is in both would be flipped twice */
		for (uint32 i = 0; i < na; i++)
			bitmap[a[i] / 64] |= UINT64CONST(1) << (a[i] % 64);
	}
	else
		flip_bits(bitmap, a, na);
	return read_bitmap(bitmap, out);
}

/* ---- arrays of either width ---- */

/* Write an id; callers know `wide` when they are compiled */
static pg_attribute_always_inline void
put_id(void *ids, bool wide, uint32 i, uint32 id)
{
	if (wide)
		((uint32 *) ids)[i] = id;
	else
		((uint16 *) ids)[i] = (uint16) id;
}

/* Append ids number from ..  to - 1 of an array to another one */
static pg_attribute_always_inline uint32
append_ids(void *out, uint32 n, const void *ids, bool wide, uint32 from, uint32 to)
{
	Size		width = wide ? sizeof(uint32) : sizeof(uint16);

	if (to > from)
		memcpy((char *) out + n * width, (const char *) ids + from * width, (to - from) * width);
	return n + (to - from);
}

/*
 * Merge a short array a and a long one b.  What only b has lies in runs
 * between the ids of a.
 */
static pg_attribute_always_inline uint32
merge_by_search(const void *a, uint32 na, const void *b, uint32 nb, bool wide, int keep,
				void *out)
{
	uint32		n = 0;
	uint32		j = 0;

	for (uint32 i = 0; i < na; i++)
	{
		uint32		id = idset_id_at(a, wide, i);
		uint32		next = idset_gallop(b, wide, j, nb, id);
		bool		both = next < nb && idset_id_at(b, wide, next) == id;

		if (keep & MERGE_ONLY_B)
			n = append_ids(out, n, b, wide, j, next);
		if (keep & (both ? MERGE_BOTH : MERGE_ONLY_A))
		{
			if (out != NULL)
				put_id(out, wide, n, id);
			n++;
		}
		j = next + both;
	}
	return keep & MERGE_ONLY_B ? append_ids(out, n, b, wide, j, nb) : n;
}

/* An ordinary merge, without branches that depend on the ids */
static pg_attribute_always_inline uint32
merge_in_step(const void *a, uint32 na, const void *b, uint32 nb, bool wide, int keep,
			  bool write, void *out)
{
	uint32		n = 0;
	uint32		i = 0;
	uint32		j = 0;

	while (i < na && j < nb)
	{
		uint32		x = idset_id_at(a, wide, i);
		uint32		y = idset_id_at(b, wide, j);

		if (write)
			put_id(out, wide, n, Min(x, y));
		if (keep == MERGE_BOTH)
			n += x == y;
		else if (keep == MERGE_ONLY_A)
			n += x < y;
		else
			n += (keep & MERGE_BOTH) != 0 || x != y;
		i += x <= y;
		j += y <= x;
	}
	if (keep & MERGE_ONLY_A)
		n = append_ids(out, n, a, wide, i, na);
	if (keep & MERGE_ONLY_B)
		n = append_ids(out, n, b, wide, j, nb);
	return n;
}

/* The same, compiled for each case */
static pg_attribute_always_inline uint32
merge_each(const void *a, uint32 na, const void *b, uint32 nb, bool wide, int keep, void *out)
{
	if (out == NULL)
		return merge_in_step(a, na, b, nb, wide, MERGE_BOTH, false, out);
	switch (keep)
	{
		case MERGE_BOTH:
			return merge_in_step(a, na, b, nb, wide, MERGE_BOTH, true, out);
		case MERGE_ONLY_A:
			return merge_in_step(a, na, b, nb, wide, MERGE_ONLY_A, true, out);
		case MERGE_ONLY_A | MERGE_ONLY_B:
			return merge_in_step(a, na, b, nb, wide, MERGE_ONLY_A | MERGE_ONLY_B, true, out);
		default:
			return merge_in_step(a, na, b, nb, wide, MERGE_ONLY_A | MERGE_BOTH | MERGE_ONLY_B,
								 true, out);
	}
}

/* What is to be kept, with the arrays exchanged */
static int
exchanged(int keep)
{
	return (keep & MERGE_BOTH) | (keep & MERGE_ONLY_A ? MERGE_ONLY_B : 0) |
		(keep & MERGE_ONLY_B ? MERGE_ONLY_A : 0);
}

/* Merge by search or in step */
static pg_attribute_always_inline uint32
merge_arrays(const void *a, uint32 na, const void *b, uint32 nb, bool wide, int keep, void *out)
{
	Assert(out != NULL || keep == MERGE_BOTH);
	if (nb / IDSET_GALLOP_RATIO > na)
		return merge_by_search(a, na, b, nb, wide, keep, out);
	if (na / IDSET_GALLOP_RATIO > nb)
		return merge_by_search(b, nb, a, na, wide, exchanged(keep), out);
	return merge_each(a, na, b, nb, wide, keep, out);
}

/* Where id number i of an array is */
static pg_attribute_always_inline const void *
ids_from(const void *ids, bool wide, uint32 i)
{
	return (const char *) ids + i * (wide ? sizeof(uint32) : sizeof(uint16));
}

/*
 * Merge by blocks, and the rest in another way.  The block of a that is not
 * done with may have found ids in blocks of b that are.  So the rest of b
 * begins where that of a does.
 */
static pg_attribute_always_inline uint32
merge_by_blocks(const void *a, uint32 na, const void *b, uint32 nb, bool wide, int keep, void *out)
{
	uint32		i;
	uint32		j;
	uint32		n;

	need_bit_positions();
	n = merge_whole_blocks(a, na, b, nb, wide, keep, out, &i, &j);
	while (i < na && j > 0 && idset_id_at(b, wide, j - 1) >= idset_id_at(a, wide, i))
		j--;
	return n + merge_arrays(ids_from(a, wide, i), na - i, ids_from(b, wide, j), nb - j, wide, keep,
							out ? unconstify(void *, ids_from(out, wide, n)) : NULL);
}

/* True if two arrays are long, and about as long as each other */
static bool
both_are_long(uint32 na, uint32 nb)
{
	uint32		shorter = Min(na, nb);

	return shorter >= LEAST_BLOCK_IDS && Max(na, nb) / IDSET_GALLOP_RATIO <= shorter;
}

/* True if no id is kept that only b has: ids of a are looked up in b */
static bool
looks_up(int keep)
{
	return (keep & MERGE_ONLY_B) == 0;
}

uint32
idset_merge_narrow(const uint16 *a, uint32 na, const uint16 *b, uint32 nb, int keep, uint16 *out)
{
	if (!both_are_long(na, nb))
		return merge_arrays(a, na, b, nb, false, keep, out);
	if (looks_up(keep) && can_compare_blocks())
		return merge_by_blocks(a, na, b, nb, false, keep, out);
	if (na + nb >= (looks_up(keep) ? LEAST_LOOKUP_IDS : LEAST_BITMAP_IDS))
		return merge_by_bitmap(a, na, b, nb, keep, out);
	return merge_arrays(a, na, b, nb, false, keep, out);
}

/* The union or symmetric difference of long arrays */
static uint32
merge_by_network(const uint32 *a, uint32 na, const uint32 *b, uint32 nb, int keep, uint32 *out)
{
	need_bit_positions();
	return idset_merge_network(a, na, b, nb, keep, bit_positions, out);
}

uint32
idset_merge_wide(const uint32 *a, uint32 na, const uint32 *b, uint32 nb, int keep, uint32 *out)
{
	if (both_are_long(na, nb) && can_compare_blocks())
		return looks_up(keep) ? merge_by_blocks(a, na, b, nb, true, keep, out) :
			merge_by_network(a, na, b, nb, keep, out);
	return merge_arrays(a, na, b, nb, true, keep, out);
}
