/*-------------------------------------------------------------------------
 *
 * kept_masks.cu
 *	  Finds, makes and drops the masks that are kept with a view.
 *
 *-------------------------------------------------------------------------
 */
#include <new>
#include <string.h>

#include "engine/equal_filters.h"
#include "kernels/search/search_backend.h"

namespace gpuvec
{

/* Let the mask of a place go */
static void
drop_mask(struct kept_masks *kept, struct kept_mask *mask)
{
	if (mask->bits == NULL)
		return;
	mask->bits.reset();
	mask->conditions.reset();
	mask->values.reset();
	*kept->total -= kept->mask_bytes;
}

kept_masks::~kept_masks()
{
	for (struct kept_mask &mask : masks)
		drop_mask(this, &mask);
}

const struct kept_mask *
find_kept_mask(struct kept_masks *kept, const gpuvec_filter *filter)
{
	uint64_t hash = gpuvec_filter_hash(filter);

	for (struct kept_mask &mask : kept->masks)
		if (mask.bits != NULL && mask.hash == hash && gpuvec_same_filter(&mask.filter, filter))
		{
			mask.used = kept->searches;
			return &mask;
		}
	return NULL;
}

/* Remember a filter; true if it was remembered before */
static bool
was_seen(struct kept_masks *kept, uint64_t hash)
{
	uint64_t *place = &kept->seen[hash % SEEN_FILTERS];
	bool seen = *place == hash;

	*place = hash;
	return seen;
}

/*
 * A place without a mask, if there is room for one: the one that was not used
 * for longest is dropped if need be.  NULL if there is none, or if all are in
 * use by this search.
 */
static struct kept_mask *
find_place(struct kept_masks *kept, size_t most)
{
	struct kept_mask *empty = NULL;
	struct kept_mask *oldest = NULL;

	for (struct kept_mask &mask : kept->masks)
		if (mask.bits == NULL)
			empty = &mask;
		else if (mask.used < kept->searches && (oldest == NULL || mask.used < oldest->used))
			oldest = &mask;
	if (empty != NULL && *kept->total + kept->mask_bytes <= most)
		return empty;
	if (oldest != NULL)
		drop_mask(kept, oldest);
	return *kept->total + kept->mask_bytes <= most ? oldest : NULL;
}

/* Copy a filter; false if out of memory */
static bool
copy_filter(struct kept_mask *mask, const gpuvec_filter *filter)
{
	mask->conditions.reset(new (std::nothrow) gpuvec_condition[filter->n]);
	mask->values.reset(new (std::nothrow) uint64_t[filter->nvalues]);
	if (mask->conditions == NULL || mask->values == NULL)
		return false;
	if (filter->n > 0)
		memcpy(mask->conditions.get(), filter->conditions, filter->n * sizeof(gpuvec_condition));
	if (filter->nvalues > 0)
		memcpy(mask->values.get(), filter->values, filter->nvalues * sizeof(uint64_t));
	mask->filter = *filter;
	mask->filter.conditions = mask->conditions.get(); /* the copies */
	mask->filter.values = mask->values.get();
	return true;
}

bool
keep_mask(struct search_backend *b, struct kept_masks *kept, const gpuvec_filter *filter,
		  const uint32_t *bits, size_t ntiles, uint2 counts, gpuvec_error *error)
{
	cudaStream_t stream = b->stream.get();
	uint64_t hash = gpuvec_filter_hash(filter);
	struct kept_mask *mask;
	gpuvec_error ignored;

	if (!was_seen(kept, hash))
		return true;
	kept->total = &b->kept;
	kept->mask_bytes = ntiles * sizeof(uint32_t);
	mask = find_place(kept, b->policy.kept_bytes);
	if (mask == NULL || !copy_filter(mask, filter) ||
		!allocate(b->device, mask->bits, kept->mask_bytes, stream, "a filter", &ignored))
		return true;
	*kept->total += kept->mask_bytes;
	mask->hash = hash;
	mask->counts = counts;
	mask->used = kept->searches;
	if (b->device.check(cudaMemcpyAsync(mask->bits.get(), bits, kept->mask_bytes,
										cudaMemcpyDeviceToDevice, stream),
						"keep a filter on the GPU", error))
		return true;
	drop_mask(kept, mask);
	return false;
}

} // namespace gpuvec
