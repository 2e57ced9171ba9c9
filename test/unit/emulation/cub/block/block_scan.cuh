/*
 * The exclusive scan of a block, for emulation.h: one thread does it all.
 */
#ifndef EMULATION_BLOCK_SCAN_CUH
#define EMULATION_BLOCK_SCAN_CUH

namespace cub
{
enum BlockScanAlgorithm
{
	BLOCK_SCAN_WARP_SCANS
};

template <typename T, int N, BlockScanAlgorithm ALGORITHM>
struct BlockScan
{
	struct TempStorage
	{
		T			items[N * 8];
		T			sum;
	};
	TempStorage &storage;

	BlockScan(TempStorage &memory) : storage(memory)
	{
	}

	template <int K, typename Op>
	void
	ExclusiveScan(T (&in)[K], T (&out)[K], T initial, Op op, T &sum)
	{
		static_assert(K <= 8, "more items than there is room for");
		for (int i = 0; i < K; i++)
			storage.items[threadIdx.x * K + i] = in[i];
		emu_block();
		if (threadIdx.x == 0)
		{
			storage.sum = initial;
			for (int i = 0; i < N * K; i++)
			{
				T			item = storage.items[i];

				storage.items[i] = storage.sum;
				storage.sum = op(storage.sum, item);
			}
		}
		emu_block();
		for (int i = 0; i < K; i++)
			out[i] = storage.items[threadIdx.x * K + i];
		sum = storage.sum;
		emu_block();
	}
};
}

#endif
