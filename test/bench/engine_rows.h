/*-------------------------------------------------------------------------
 *
 * engine_rows.h
 *	  Rows and queries for benchmarks of the engine alone, brought to a
 *	  backend as the engine brings those that sessions send.
 *
 * Rows are staged with their ids.  If one of them is above 65,535, the ids
 * are counted and numbered, and the rows move to another stage with their
 * numbers, as in a load (sets_commit.c).  Then segments are built of all
 * rows.  The ids of queries are looked up in the same map (serve_search.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_BENCH_ENGINE_ROWS_H
#define GPUVEC_BENCH_ENGINE_ROWS_H

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench_lib.h"
#include "engine/backend.h"

extern "C"
{
#include "engine/sets/id_numbers.h"
#include "engine/sets/renumber.h"
#include "engine/sets/stage.h"
}

namespace engine_rows
{

/* Bytes of the longest row in the form that the stage takes */
static const size_t MOST_PACKED = gpuvec_packed_bytes(GPUVEC_MAX_IDS, GPUVEC_MAX_IDS) + 4;

/* A query as the backend wants it; its arrays belong to it */
struct Query
{
	std::vector<uint16_t> hot;
	std::vector<uint32_t> cold;
	uint32_t	others = 0;		/* ids that are not in hot[] */

	/* Ask for this query; answers are the caller's */
	void
	ask(gpuvec_topk_query *request) const
	{
		*request = {};
		request->ids = hot.data();
		request->len = (uint32_t) hot.size();
		request->others = others;
		request->ncold = (uint32_t) cold.size();
		request->cold = cold.data();
	}
};

/* A column: its rows are added, then it is built, then queries are asked */
class Column
{
public:
	Column()
		: stage(gpuvec_stage_new(gpuvec_row_kind{})), ids(GPUVEC_MAX_IDS), packed(MOST_PACKED / sizeof(uint16_t))
	{
		if (stage == nullptr)
			exit(2);
	}
	Column(const Column &) = delete;
	Column &operator=(const Column &) = delete;
	~Column()
	{
		release();
		gpuvec_id_numbers_unref(numbers);
		gpuvec_stage_free(stage);
	}

	/* Add a row of ids of 16 or 32 bits, ascending and distinct */
	template <class Id>
	void
	add(uint64_t tid, const Id *from, uint32_t n)
	{
		gpuvec_source_row row = {};
		gpuvec_error error = {};

		std::copy(from, from + n, ids.begin());
		gpuvec_pack_numbers(ids.data(), n, packed.data(), &row);
		row.tid = tid;
		if (!gpuvec_stage_add(stage, &row, false, &error))
			bench::die(error);
	}

	/* Number the ids of all rows if one is large; true if so */
	bool
	number_ids(gpuvec_thread_pool *pool)
	{
		gpuvec_error error = {};

		if (gpuvec_stage_cold(stage) == 0)
			return false;
		numbers = gpuvec_renumber_map(stage, pool, nullptr, nullptr, &error);
		if (numbers == nullptr || !gpuvec_renumber_rows(&stage, numbers, true, pool, &error))
			bench::die(error);
		return true;
	}

	/* Build segments of all rows, which a backend adopts */
	void
	build(gpuvec_backend *backend, gpuvec_thread_pool *pool)
	{
		gpuvec_stage_target target = {};
		gpuvec_segment **segments;
		gpuvec_error error = {};
		uint32_t	n;

		target.pool = pool;
		target.backend = backend;
		target.nblocks = UINT32_MAX;
		target.nrows = gpuvec_stage_rows(stage);
		target.shares = gpuvec_thread_pool_threads(pool);
		target.sorted = true;
		target.progress = [](void *, size_t, size_t, gpuvec_error *) { return true; };
		if (!gpuvec_stage_build(stage, &target, &segments, &n, &error))
			bench::die(error);
		make_view(backend, segments, n);
		free(segments);
	}

	/* The numbers of a query's ids */
	template <class Id>
	Query
	query(const std::vector<Id> &from) const
	{
		std::vector<uint32_t> of(from.begin(), from.end());
		Query		made;
		size_t		n = 0;

		if (numbers)
			gpuvec_id_numbers_find(numbers, of.data(), (uint32_t) of.size(), of.data());
		else
			for (uint32_t &id : of)
				id = id > GPUVEC_MAX_ID ? GPUVEC_NO_NUMBER : id;
		gpuvec_sort_numbers(of.data(), (uint32_t) of.size());
		for (; n < of.size() && of[n] < GPUVEC_HOT_NUMBERS; n++)
			made.hot.push_back((uint16_t) of[n]);
		made.others = (uint32_t) (of.size() - n);
		for (; n < of.size() && of[n] != GPUVEC_NO_NUMBER; n++)
			made.cold.push_back(of[n]);
		return made;
	}

	/* Give up the view, as must be done before its backend is closed */
	void
	release(void)
	{
		if (view)
			gpuvec_view_unref(view);
		view = nullptr;
	}

	gpuvec_view *view = nullptr;

	/* Bytes of the map of ids, 0 without one */
	size_t
	map_bytes(void) const
	{
		return numbers ? gpuvec_id_numbers_bytes(numbers) : 0;
	}

private:
	gpuvec_stage *stage;
	gpuvec_id_numbers *numbers = nullptr;
	std::vector<uint32_t> ids;	/* of a row */
	std::vector<uint16_t> packed;

	/* The view of these segments; takes over the references to them */
	void
	make_view(gpuvec_backend *backend, gpuvec_segment **segments, uint32_t n)
	{
		std::vector<gpuvec_view_entry> entries(n);
		gpuvec_error error = {};

		for (uint32_t i = 0; i < n; i++)
			entries[i].segment = segments[i];
		view = gpuvec_view_new(entries.data(), n, &error);
		if (view == nullptr || !backend->adopt_view(backend, view, &error))
			bench::die(error);
	}
};

}	/* namespace engine_rows */

#endif							/* GPUVEC_BENCH_ENGINE_ROWS_H */
