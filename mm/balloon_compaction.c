// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages that a balloon driver holds for the hypervisor: how they are had, how
 * they enter and leave a balloon, and how compaction moves them meanwhile.
 *
 * The rules about page->lru and the locks are in balloon_compaction.h.
 */
#include <linux/balloon_compaction.h>
#include <linux/export.h>
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/vmstat.h>

/*
 * Pages that one hold of pages_lock may handle. Interrupts are off meanwhile,
 * and a balloon can have millions of pages.
 */
#define BALLOON_LOCK_BATCH	32

/*
 * A balloon takes what can be had without killing anything for it and without
 * the reserves that get others out of trouble. Movable memory will do if we
 * can move the page again.
 */
#define BALLOON_GFP	(__GFP_NOMEMALLOC | __GFP_NORETRY | __GFP_NOWARN | \
			 (IS_ENABLED(CONFIG_BALLOON_COMPACTION) ? \
			  GFP_HIGHUSER_MOVABLE : GFP_HIGHUSER))

/**
 * balloon_page_alloc() - allocates a page that may enter a balloon
 *
 * Context: process context, may reclaim; hold no lock that an OOM notifier or
 * @migratepage takes.
 * Return: the page, with one reference, or NULL.
 */
struct page *balloon_page_alloc(void)
{
	return alloc_page(BALLOON_GFP);
}
EXPORT_SYMBOL_GPL(balloon_page_alloc);

/*
 * Someone may hold the lock of a page that has just been allocated, memory
 * failure handling for one. Such a page cannot be made movable now; it enters
 * the balloon all the same and stays where it is until it leaves.
 */
static void balloon_add_one(struct balloon_dev_info *balloon, struct page *page)
{
	lockdep_assert_held(&balloon->pages_lock);
	if (trylock_page(page)) {
		balloon_page_insert(balloon, page);
		unlock_page(page);
		return;
	}
	__SetPageOffline(page);
	list_add(&page->lru, &balloon->pages);
}

/* Adds at most BALLOON_LOCK_BATCH of @pages, returns how many. */
static size_t balloon_add_batch(struct balloon_dev_info *balloon,
				struct list_head *pages)
{
	size_t nr_added = 0;
	struct page *page;

	guard(spinlock_irqsave)(&balloon->pages_lock);
	while (nr_added < BALLOON_LOCK_BATCH && !list_empty(pages)) {
		page = list_first_entry(pages, struct page, lru);
		list_del(&page->lru);
		balloon_add_one(balloon, page);
		nr_added++;
	}
	__count_vm_events(BALLOON_INFLATE, nr_added);
	return nr_added;
}

/**
 * balloon_page_list_enqueue() - puts pages into a balloon
 * @balloon: the balloon
 * @pages: pages from balloon_page_alloc(), linked through their lru; empty on
 *	return
 *
 * Context: any; the caller sees to it that no one else uses @pages.
 * Return: the number of pages that entered.
 */
size_t balloon_page_list_enqueue(struct balloon_dev_info *balloon,
				 struct list_head *pages)
{
	size_t nr_pages = 0;

	while (!list_empty(pages))
		nr_pages += balloon_add_batch(balloon, pages);
	return nr_pages;
}
EXPORT_SYMBOL_GPL(balloon_page_list_enqueue);

/* Takes @page out of the balloon unless someone holds its lock. */
static bool balloon_take_one(struct balloon_dev_info *balloon,
			     struct page *page, struct list_head *pages)
{
	lockdep_assert_held(&balloon->pages_lock);
	if (!trylock_page(page))
		return false;
	list_move_tail(&page->lru, pages);
	balloon_page_finalize(page);
	unlock_page(page);
	return true;
}

/*
 * Takes at most @nr_pages and at most BALLOON_LOCK_BATCH. A page whose lock is
 * held goes to the end of the balloon's list and into @nr_busy, so that the
 * next batch does not meet it again first.
 */
static size_t balloon_take_batch(struct balloon_dev_info *balloon,
				 struct list_head *pages, size_t nr_pages,
				 size_t *nr_busy)
{
	struct page *page, *next;
	unsigned int budget = BALLOON_LOCK_BATCH;
	size_t nr_taken = 0;

	guard(spinlock_irqsave)(&balloon->pages_lock);
	list_for_each_entry_safe(page, next, &balloon->pages, lru) {
		if (nr_taken == nr_pages || !budget--)
			break;
		if (balloon_take_one(balloon, page, pages)) {
			nr_taken++;
			continue;
		}
		list_move_tail(&page->lru, &balloon->pages);
		++*nr_busy;
	}
	__count_vm_events(BALLOON_DEFLATE, nr_taken);
	return nr_taken;
}

/**
 * balloon_page_list_dequeue() - takes pages out of a balloon
 * @balloon: the balloon
 * @pages: where the pages are added, linked through their lru
 * @nr_pages: how many to take
 *
 * Pages that are isolated, or locked by someone, stay. A short count therefore
 * does not mean that the balloon is empty.
 *
 * Context: any.
 * Return: the number of pages taken.
 */
size_t balloon_page_list_dequeue(struct balloon_dev_info *balloon,
				 struct list_head *pages, size_t nr_pages)
{
	size_t nr_taken = 0, nr_busy = 0, nr_now;

	while (nr_taken < nr_pages && nr_busy < BALLOON_LOCK_BATCH) {
		size_t nr_busy_before = nr_busy;

		nr_now = balloon_take_batch(balloon, pages, nr_pages - nr_taken,
					    &nr_busy);
		if (!nr_now && nr_busy == nr_busy_before)
			break;
		nr_taken += nr_now;
	}
	return nr_taken;
}
EXPORT_SYMBOL_GPL(balloon_page_list_dequeue);

/**
 * balloon_page_enqueue() - puts one page into a balloon
 * @balloon: the balloon
 * @page: a page from balloon_page_alloc(), on no list
 *
 * Context: any.
 */
void balloon_page_enqueue(struct balloon_dev_info *balloon, struct page *page)
{
	LIST_HEAD(pages);

	list_add(&page->lru, &pages);
	balloon_page_list_enqueue(balloon, &pages);
}
EXPORT_SYMBOL_GPL(balloon_page_enqueue);

/**
 * balloon_page_dequeue() - takes one page out of a balloon
 * @balloon: the balloon
 *
 * Context: any.
 * Return: the page, on no list, or NULL if the balloon has none that can be
 * taken now.
 */
struct page *balloon_page_dequeue(struct balloon_dev_info *balloon)
{
	struct page *page;
	LIST_HEAD(pages);

	if (!balloon_page_list_dequeue(balloon, &pages, 1))
		return NULL;
	page = list_first_entry(&pages, struct page, lru);
	list_del_init(&page->lru);
	return page;
}
EXPORT_SYMBOL_GPL(balloon_page_dequeue);

#ifdef CONFIG_BALLOON_COMPACTION

/*
 * The three below are called with the page locked. The page leads to its
 * balloon as long as that lock is held, since balloon_page_finalize() wants
 * the lock as well.
 */
static struct balloon_dev_info *balloon_of(struct page *page)
{
	return (struct balloon_dev_info *)page_private(page);
}

static bool balloon_page_isolate(struct page *page, isolate_mode_t mode)
{
	struct balloon_dev_info *balloon = balloon_of(page);

	guard(spinlock_irqsave)(&balloon->pages_lock);
	list_del(&page->lru);
	balloon->isolated_pages++;
	return true;
}

static void balloon_page_putback(struct page *page)
{
	struct balloon_dev_info *balloon = balloon_of(page);

	guard(spinlock_irqsave)(&balloon->pages_lock);
	list_add(&page->lru, &balloon->pages);
	/* A driver that took one off twice must not turn this into millions. */
	if (!WARN_ONCE(!balloon->isolated_pages,
		       "balloon: a page returns that was not counted\n"))
		balloon->isolated_pages--;
}

static int balloon_page_migrate(struct page *newpage, struct page *page,
				enum migrate_mode mode)
{
	struct balloon_dev_info *balloon = balloon_of(page);

	return balloon->migratepage(balloon, newpage, page, mode);
}

const struct movable_operations balloon_mops = {
	.isolate_page	= balloon_page_isolate,
	.putback_page	= balloon_page_putback,
	.migrate_page	= balloon_page_migrate,
};
EXPORT_SYMBOL_GPL(balloon_mops);

#endif /* CONFIG_BALLOON_COMPACTION */
