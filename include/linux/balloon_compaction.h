/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What mm offers a balloon driver: a set of pages that belong to a hypervisor
 * for the time being, and that compaction may still move.
 *
 * A page of a balloon is marked PageOffline, so that dump tools leave it
 * alone. If the driver can replace a page (@migratepage), the page is movable
 * as well, and page->private leads from it to its balloon.
 *
 * Who owns page->lru:
 *
 *   in the balloon	linked on @pages, under @pages_lock
 *   isolated		compaction, counted in @isolated_pages
 *   elsewhere		whoever holds the page
 *
 * Lock order: page lock, then @pages_lock. Page locks are only ever tried, as
 * compaction takes them in the opposite order of ours. A page enters, leaves
 * and is isolated with both locks held, hence none of the three can see
 * another one half done.
 */
#ifndef _LINUX_BALLOON_COMPACTION_H
#define _LINUX_BALLOON_COMPACTION_H

#include <linux/list.h>
#include <linux/lockdep.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/page-flags.h>
#include <linux/spinlock.h>

/**
 * struct balloon_dev_info - the pages of one balloon
 * @isolated_pages: pages that compaction has taken off @pages for now.
 *	Protected by @pages_lock.
 * @pages_lock: taken with interrupts disabled.
 * @pages: the pages that are in the balloon and not isolated.
 *	Protected by @pages_lock.
 * @migratepage: replaces @page by @newpage, both locked. Drops the balloon's
 *	reference to @page, takes one to @newpage, and takes @page off
 *	@isolated_pages. Returns MIGRATEPAGE_SUCCESS, -EAGAIN to be asked again
 *	soon, or another error to be left alone. Set once, before the first
 *	page enters; NULL if pages cannot be replaced.
 */
struct balloon_dev_info {
	unsigned long isolated_pages;
	/* Protects isolated_pages and pages */
	spinlock_t pages_lock;
	struct list_head pages;
	int (*migratepage)(struct balloon_dev_info *balloon,
			   struct page *newpage, struct page *page,
			   enum migrate_mode mode);
};

struct page *balloon_page_alloc(void);
void balloon_page_enqueue(struct balloon_dev_info *balloon, struct page *page);
struct page *balloon_page_dequeue(struct balloon_dev_info *balloon);
size_t balloon_page_list_enqueue(struct balloon_dev_info *balloon,
				 struct list_head *pages);
size_t balloon_page_list_dequeue(struct balloon_dev_info *balloon,
				 struct list_head *pages, size_t nr_pages);

#ifdef CONFIG_BALLOON_COMPACTION
extern const struct movable_operations balloon_mops;

static inline void balloon_page_set_movable(struct balloon_dev_info *balloon,
					    struct page *page)
{
	if (!balloon->migratepage)
		return;
	__SetPageMovable(page, &balloon_mops);
	set_page_private(page, (unsigned long)balloon);
}

static inline void balloon_page_clear_movable(struct page *page)
{
	/* Once cleared, the page still says movable, but has no balloon. */
	if (!__PageMovable(page) || !page_private(page))
		return;
	__ClearPageMovable(page);
	set_page_private(page, 0);
}
#else
static inline void balloon_page_set_movable(struct balloon_dev_info *balloon,
					    struct page *page)
{
}

static inline void balloon_page_clear_movable(struct page *page)
{
}
#endif

/**
 * balloon_devinfo_init() - makes an empty balloon
 * @balloon: the balloon
 */
static inline void balloon_devinfo_init(struct balloon_dev_info *balloon)
{
	spin_lock_init(&balloon->pages_lock);
	INIT_LIST_HEAD(&balloon->pages);
	balloon->isolated_pages = 0;
	balloon->migratepage = NULL;
}

/**
 * balloon_page_insert() - puts a page into a balloon
 * @balloon: the balloon, its pages_lock held
 * @page: the page, locked, on no list; the balloon takes over one reference
 *
 * Counts no event: for a page that replaces another one. Pages that make the
 * balloon larger come through balloon_page_enqueue() and its list variant.
 */
static inline void balloon_page_insert(struct balloon_dev_info *balloon,
				       struct page *page)
{
	lockdep_assert_held(&balloon->pages_lock);
	__SetPageOffline(page);
	balloon_page_set_movable(balloon, page);
	list_add(&page->lru, &balloon->pages);
}

/**
 * balloon_page_finalize() - strips a page of everything that marks it as
 *	part of a balloon
 * @page: the page, locked, no longer on the balloon's list
 *
 * Afterwards the page may be given back to the page allocator.
 */
static inline void balloon_page_finalize(struct page *page)
{
	balloon_page_clear_movable(page);
	__ClearPageOffline(page);
}

#endif /* _LINUX_BALLOON_COMPACTION_H */
