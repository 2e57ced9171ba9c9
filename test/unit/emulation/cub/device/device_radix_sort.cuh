/*
 * The radix sort of a device, for emulation.h: stable, by some of the bits.
 */
#ifndef EMULATION_DEVICE_RADIX_SORT_CUH
#define EMULATION_DEVICE_RADIX_SORT_CUH

namespace cub
{
template <typename T>
struct DoubleBuffer
{
	T		   *buffers[2];
	int			selector;

	DoubleBuffer(T *current, T *alternate) : buffers{current, alternate}, selector(0)
	{
	}

	T *
	Current(void)
	{
		return buffers[selector];
	}

	T *
	Alternate(void)
	{
		return buffers[!selector];
	}
};

struct DeviceRadixSort
{
	template <typename K>
	static cudaError_t
	SortKeys(void *work, size_t &bytes, DoubleBuffer<K> &keys, int n, int, int, cudaStream_t)
	{
		if (work == NULL)
			bytes = 1000;
		else
			std::sort(keys.Current(), keys.Current() + n);
		return cudaSuccess;
	}

	template <typename K, typename V>
	static cudaError_t
	SortPairs(void *work, size_t &bytes, DoubleBuffer<K> &keys, DoubleBuffer<V> &values, int n,
			  int first_bit, int end_bit, cudaStream_t)
	{
		std::vector<int> order(n);
		uint64_t	mask = (end_bit < 64 ? ((uint64_t) 1 << end_bit) - 1 : UINT64_MAX) >> first_bit << first_bit;

		if (work == NULL)
		{
			bytes = 1000;
			return cudaSuccess;
		}
		for (int i = 0; i < n; i++)
			order[i] = i;
		std::stable_sort(order.begin(), order.end(), [&] (int a, int b)
						 { return (keys.Current()[a] & mask) < (keys.Current()[b] & mask); });
		for (int i = 0; i < n; i++)
		{
			keys.Alternate()[i] = keys.Current()[order[i]];
			values.Alternate()[i] = values.Current()[order[i]];
		}
		keys.selector ^= 1;
		values.selector ^= 1;
		return cudaSuccess;
	}
};
}

#endif
