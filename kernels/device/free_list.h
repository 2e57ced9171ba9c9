/*-------------------------------------------------------------------------
 *
 * free_list.h
 *	  A fixed number of items, each of which one thread uses at a time.
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
	/* Owns an item, and returns it to the list at its end */
	typedef std::unique_ptr<T, putter> loan;

	/* Take a free item; waits until there is one */
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
