/*-------------------------------------------------------------------------
 *
 * group_kernels.h
 *	  Kernels that put the rows which a query counts into groups.
 *
 * The kernels that count rows mark them (row_counts.marks).
 *
 * group_rows.cu      counts marked rows in bins, by columns
 * group_merge.cu     makes groups of the bins of one column
 * group_ids.cu       counts marked rows by the ids of their sets
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_GROUP_KERNELS_H
#define GPUVEC_GROUP_KERNELS_H

#include "core/grouping.h"
#include "kernels/search/device_segment.h"

namespace gpuvec
{

/* The bins of a segment (engine/groups.h) */
struct segment_bins
{
	uint64_t first; /* where their words begin */
	uint32_t n;
	uint32_t words;
};

/* Parameters of putting counted rows into groups; see group_rows.cu */
struct group_params
{
	const struct device_segment *segments;
	const struct segment_bins *segment_bins; /* [nsegments] */
	uint32_t *marks;                         /* as row_counts.marks */
	uint32_t *bins;                          /* of all segments */
	uint32_t nsegments;
	gpuvec_grouping grouping;
};

/* What there is of the groups that the device makes of bins; 0 before */
struct group_sums
{
	uint64_t null_rows; /* rows whose key is null */
	uint32_t npairs;    /* bins with other rows, .. */
	uint32_t ngroups;   /* .. and different keys of them */
};

/* Parameters of making groups of bins, by one column; see group_merge.cu */
struct merge_params
{
	const struct device_segment *segments;
	const struct segment_bins *segment_bins; /* [nsegments] */
	const uint32_t *bins;                    /* of all segments */
	struct group_sums *sums;
	/* room for as many as there are bins: keys and rows of pairs, by turns */
	uint64_t *keys[2];
	uint64_t *rows[2];
	uint32_t nsegments;
	uint32_t column;
};

/* Parameters of counting rows by the ids of their sets; see group_ids.cu */
struct id_params
{
	const struct device_segment *segments;
	const uint2 *groups;           /* of 32 tiles, as scan_params.groups */
	const uint32_t *cold_segments; /* [ncold_segments] with cold numbers */
	const uint32_t *marks;         /* as row_counts.marks */
	uint32_t *counts;              /* of all numbers; 0 before */
	uint32_t ngroups;
	uint32_t ncold_segments;
	uint32_t nshared;      /* lower numbers are in shared memory, .. */
	uint32_t shared_words; /* .. where they take so many words */
};

/* Words of bins that a thread block has in shared memory, at most */
#define GROUP_SHARED_WORDS 8192

/*
 * Copies of a segment's bins in shared memory, of so many words: lanes with
 * copies of their own do not wait for one another.  0: there is no room.
 */
static __forceinline__ GPUVEC_HD uint32_t
bin_copies(uint64_t words)
{
	uint32_t copies = 32;

	while (copies * words > GROUP_SHARED_WORDS)
		copies /= 2;
	return copies;
}

/* group_rows.cu */
extern cudaError_t
group_clear_launch(const struct group_params *params, cudaStream_t stream);
extern cudaError_t
group_rows_launch(const struct group_params *params, size_t shared_bytes, cudaStream_t stream);

/* group_ids.cu */
extern cudaError_t
group_ids_prepare(size_t smem_limit);
/*
 * Choose how many of nhot numbers, at most `most`, are counted in shared
 * memory: sets nshared and shared_words
 */
extern void
group_ids_share(struct id_params *params, uint32_t nhot, uint32_t most, size_t smem_limit);
extern cudaError_t
group_ids_blocks(const struct id_params *params, int *blocks);
extern cudaError_t
group_ids_launch(const struct id_params *params, uint32_t blocks, cudaStream_t stream);

/* group_merge.cu */
extern cudaError_t
group_pairs_launch(const struct merge_params *params, cudaStream_t stream);
/*
 * Make groups of n pairs: sums->ngroups of them, in keys[*to] and rows[*to].
 * If work is NULL, only find out *work_bytes.
 */
extern cudaError_t
group_merge(const struct merge_params *params, uint32_t n, void *work, size_t *work_bytes,
			uint32_t *to, cudaStream_t stream);

} // namespace gpuvec

#endif /* GPUVEC_GROUP_KERNELS_H */
