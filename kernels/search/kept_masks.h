/*-------------------------------------------------------------------------
 *
 * kept_masks.h
 *	  Masks of filters that are kept with a view, since sessions repeat their
 *	  conditions.
 *
 * A view never changes, and a mask depends on nothing but the view and the
 * filter.  So a mask holds for as long as the view lives; a refresh makes
 * another view, which begins without masks.  A mask is kept once its filter
 * has been seen twice.  If there is no room, the mask that has not been used
 * for longest makes room for it.
 *
 * Only topk uses masks, of which one call runs at a time; any thread may
 * release a view.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_KEPT_MASKS_H
#define GPUVEC_KEPT_MASKS_H

#include <atomic>
#include <memory>

#include "engine/backend.h"
#include "kernels/device/cuda_resources.h"

namespace gpuvec
{

struct search_backend;

/* Bytes of all masks that are kept on a device, which many threads change */
typedef std::atomic<size_t> kept_bytes;

struct kept_mask
{
	uint64_t hash = 0; /* of the filter */
	gpuvec_filter filter = {};
	std::unique_ptr<gpuvec_condition[]> conditions; /* of the filter */
	std::unique_ptr<uint64_t[]> values;
	unique_memory bits;    /* uint32_t [ntiles]; NULL: not in use */
	uint2 counts = {0, 0}; /* rows that pass, and those that take part */
	uint64_t used = 0;     /* number of the last search that used it */
};

#define KEPT_MASKS 64    /* of a view, at most */
#define SEEN_FILTERS 256 /* hashes that a view remembers */

struct kept_masks
{
	struct kept_mask masks[KEPT_MASKS];
	uint64_t seen[SEEN_FILTERS] = {}; /* hashes of filters, by their low bits */
	uint64_t searches = 0;            /* number of the search under way */
	size_t mask_bytes = 0;
	kept_bytes *total = NULL; /* NULL: nothing was kept */

	~kept_masks();
};

/* The mask of a filter, or NULL; it is not freed during this search */
extern const struct kept_mask *
find_kept_mask(struct kept_masks *kept, const gpuvec_filter *filter);

/*
 * Keep the mask of a filter that has none, if the filter was seen before and
 * there is room: queues a copy of `bits`, a mask on the device.  Without
 * memory, nothing is kept.  Returns false only if the GPU failed.
 */
extern bool
keep_mask(struct search_backend *b, struct kept_masks *kept, const gpuvec_filter *filter,
		  const uint32_t *bits, size_t ntiles, uint2 counts, gpuvec_error *error);

} // namespace gpuvec

#endif /* GPUVEC_KEPT_MASKS_H */
