/*-------------------------------------------------------------------------
 *
 * scan_lone_avx512.c
 *	  The scan for one query with AVX-512.
 *
 * A signature of the query, 1024 bits in two registers, gives an upper bound
 * of a row's common ids.  Bits 0-5 of an id choose one of 64 words, bits 6-9
 * the bit in that word.  The ids of the query always hit a set bit; other ids
 * seldom do.  32 ids, 8 of each of 4 rows, are looked up at once.  Only rows
 * whose bound reaches the need are counted exactly, with the bitmap.
 *
 * Compiled with AVX-512 F, BW and VL enabled; called only where they exist.
 *
 *-------------------------------------------------------------------------
 */
#include <immintrin.h>

#include "engine/cpu/scan_lone.h"

/* Rows of a tile that share a register: 4 rows of 8 ids */
#define REGISTER_ROWS	4
#define TILE_REGISTERS	(GPUVEC_TILE_ROWS / REGISTER_ROWS)

/* The query's signature */
typedef struct lone_signature
{
	__m512i		low;			/* words 0 .. 31 */
	__m512i		high;			/* words 32 .. 63 */
} lone_signature;

/*
 * Upper bounds of the common ids of the 32 rows of a tile of nchunks chunks
 */
static inline void
bound_tile(const lone_signature *sig, const uint16_t *ids, uint32_t nchunks, uint32_t *bound)
{
	const __m512i one = _mm512_set1_epi16(1);
	const __m512i low4 = _mm512_set1_epi16(15);
	__m512i		sum[TILE_REGISTERS];

	for (int i = 0; i < TILE_REGISTERS; i++)
		sum[i] = _mm512_setzero_si512();
	for (uint32_t c = 0; c < nchunks; c++)
	{
#pragma GCC unroll 8
		for (int i = 0; i < TILE_REGISTERS; i++)
		{
			__m512i		id = _mm512_loadu_si512(ids + i * 32);
			__m512i		word = _mm512_permutex2var_epi16(sig->low, id, sig->high);
			__m512i		shift = _mm512_and_si512(_mm512_srli_epi16(id, 6), low4);

			sum[i] = _mm512_add_epi16(sum[i],
									  _mm512_and_si512(_mm512_srlv_epi16(word, shift), one));
		}
		ids += CHUNK_VALUES;
	}
	for (int i = 0; i < TILE_REGISTERS; i++)
	{
		/*
		 * add up the 8 sums of each row: first pairs of 16 bits to 32 bits,
		 * then across the 128-bit lane
		 */
		__m512i		s = _mm512_madd_epi16(sum[i], one);

		s = _mm512_add_epi32(s, _mm512_shuffle_epi32(s, (_MM_PERM_ENUM) 0x4E));
		s = _mm512_add_epi32(s, _mm512_shuffle_epi32(s, (_MM_PERM_ENUM) 0xB1));
		for (int r = 0; r < REGISTER_ROWS; r++)
		{
			__m128i		lane = r == 0 ? _mm512_castsi512_si128(s) :
				r == 1 ? _mm512_extracti32x4_epi32(s, 1) :
				r == 2 ? _mm512_extracti32x4_epi32(s, 2) : _mm512_extracti32x4_epi32(s, 3);

			bound[i * REGISTER_ROWS + r] = (uint32_t) _mm_cvtsi128_si32(lane);
		}
	}
}

/* Scan the live rows [row, end) of a segment, all of one length */
static void
scan_rows(const lone_scan *scan, const gpuvec_view_entry *entry, uint32_t row, uint32_t end,
		  uint32_t need)
{
	const gpuvec_segment *segment = entry->segment;
	lone_signature sig = {_mm512_loadu_si512(scan->signature),
	_mm512_loadu_si512(scan->signature + 32)};
	gpuvec_shared shared = {0, gpuvec_query_len(scan->query->query), segment->len[row]};

	while (row < end)
	{
		uint32_t	tile = row / GPUVEC_TILE_ROWS;
		uint32_t	stop = (tile + 1) * GPUVEC_TILE_ROWS;
		const uint32_t *chunk = &segment->tile_chunk[tile];
		uint32_t	nchunks = (shared.b + GPUVEC_CHUNK_IDS - 1) / GPUVEC_CHUNK_IDS;
		uint32_t	bound[GPUVEC_TILE_ROWS];

		/* fewer if the rows have cold ids */
		if (nchunks > chunk[1] - chunk[0])
			nchunks = chunk[1] - chunk[0];
		if (stop > end)
			stop = end;
		/* the 16-bit sums cannot overflow: each has at most nchunks hits */
		bound_tile(&sig, segment->ids + (size_t) chunk[0] * CHUNK_VALUES, nchunks, bound);
		for (; row < stop; row++)
		{
			if (bound[row % GPUVEC_TILE_ROWS] < need || !gpuvec_entry_live(entry, row) ||
				!mask_has(scan->mask, row))
				continue;
			shared.common = lone_count(scan->bitmap, segment, row, gpuvec_hot_len(segment, row));
			if (shared.common >= need)
				best_offer(scan->best, &shared, entry, row);
		}
	}
}

bool
scan_lone_avx512(cpu_slice *slice)
{
	return lone_scan_slice(slice, scan_rows);
}
