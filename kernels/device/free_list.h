/*-------------------------------------------------------------------------
 *
 * free_list.h
 *	  A fixed number of things of which each serves one thread at a time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FREE_LIST_H
#define GPUVEC_FREE_LIST_H

#include <condition_variable>
#include <memory>
#include <mutex>

namespace gpuvec
{

template <typename T, int N>
class free_list
{
	std::mutex mutex; /* guards busy[] */
	std::condition_variable freed;
	bool busy[N] = {};
	T items[N];

	struct putter
	{
		free_list *list;

		void
		operator()(T *item) const
		{
			list->put(item);
		}
	};

	void
	put(T *item)
	{
		std::lock_guard<std::mutex> guard(mutex);

		busy[item - items] = false;
		freed.notify_one();
	}

public:
	/* Holds an item, and gives it back at the end */
	typedef std::unique_ptr<T, putter> loan;

	/* Wait for an item that nobody uses */
	loan
	take()
	{
		std::unique_lock<std::mutex> guard(mutex);

		for (;;)
		{
			for (int i = 0; i < N; i++)
				if (!busy[i])
				{
					busy[i] = true;
					return loan(&items[i], {this});
				}
			freed.wait(guard);
		}
	}
};

} // namespace gpuvec

#endif /* GPUVEC_FREE_LIST_H */
