/*
 * The sums of neighbors with the same key, for emulation.h.
 */
#ifndef EMULATION_DEVICE_REDUCE_CUH
#define EMULATION_DEVICE_REDUCE_CUH

namespace cub
{
struct DeviceReduce
{
	template <typename K, typename V, typename N, typename F>
	static cudaError_t
	ReduceByKey(void *work, size_t &bytes, const K *keys, K *unique, const V *values, V *sums,
				N *nunique, F f, int n, cudaStream_t)
	{
		N			last = 0;

		if (work == NULL)
		{
			bytes = 1000;
			return cudaSuccess;
		}
		for (int i = 0; i < n; i++)
		{
			bool		same = i > 0 && keys[i] == keys[i - 1];

			last += !same;
			unique[last - 1] = keys[i];
			sums[last - 1] = same ? f(sums[last - 1], values[i]) : values[i];
		}
		*nunique = last;
		return cudaSuccess;
	}
};
}

#endif
