/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the driver expects of a kernel, provided for kernels that lack it.
 *
 * Included before the driver by the compiler's command line. The only file
 * that knows kernel versions; everything in it names the first release that
 * does not need it any more.
 */
#ifndef VIRTIO_BALLOON_COMPAT_H
#define VIRTIO_BALLOON_COMPAT_H

#include <linux/version.h>

/* Ours knows all statistics; the include guard keeps the kernel's own out. */
#include "include/uapi/linux/virtio_balloon.h"

#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/shrinker.h>
#include <linux/slab.h>
#include <linux/virtio_config.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0)
#error "virtio_balloon needs Linux 6.1 or newer"
#endif

/* Before 6.4, MAX_ORDER was one more than the largest order there is. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 4, 0)
#define MAX_PAGE_ORDER	(MAX_ORDER - 1)
#elif LINUX_VERSION_CODE < KERNEL_VERSION(6, 8, 0)
#define MAX_PAGE_ORDER	MAX_ORDER
#endif

/*
 * Since 6.7 a shrinker is allocated by the kernel and points to its owner.
 * Before, it is the owner who embeds it: in a structure that looks like the
 * newer one, and that takes the name of the kernel's in the driver.
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 7, 0)
#include <linux/fs.h>
#include <linux/memcontrol.h>
#include <linux/swap.h>
#include <linux/trace_events.h>

struct compat_shrinker {
	struct shrinker registered;
	const char *name;
	void *private_data;
	unsigned long (*count_objects)(struct compat_shrinker *shrinker,
				       struct shrink_control *sc);
	unsigned long (*scan_objects)(struct compat_shrinker *shrinker,
				      struct shrink_control *sc);
};

static inline unsigned long compat_shrinker_count(struct shrinker *registered,
						  struct shrink_control *sc)
{
	struct compat_shrinker *shrinker =
		container_of(registered, struct compat_shrinker, registered);

	return shrinker->count_objects(shrinker, sc);
}

static inline unsigned long compat_shrinker_scan(struct shrinker *registered,
						 struct shrink_control *sc)
{
	struct compat_shrinker *shrinker =
		container_of(registered, struct compat_shrinker, registered);

	return shrinker->scan_objects(shrinker, sc);
}

/* @name: a literal, nothing to be formatted */
static inline struct compat_shrinker *
compat_shrinker_alloc(unsigned int flags, const char *name)
{
	struct compat_shrinker *shrinker = kzalloc(sizeof(*shrinker),
						   GFP_KERNEL);

	if (!shrinker)
		return NULL;
	shrinker->name = name;
	shrinker->registered.flags = flags;
	shrinker->registered.seeks = DEFAULT_SEEKS;
	shrinker->registered.count_objects = compat_shrinker_count;
	shrinker->registered.scan_objects = compat_shrinker_scan;
	return shrinker;
}

/*
 * Registration can fail for want of memory here, but not later. Without a
 * shrinker the blocks that are lent to the host still come back in time.
 */
static inline void compat_shrinker_register(struct compat_shrinker *shrinker)
{
	if (register_shrinker(&shrinker->registered, "%s", shrinker->name))
		pr_warn("%s: no memory to register a shrinker\n",
			shrinker->name);
}

/* Does nothing with a shrinker that could not be registered. */
static inline void compat_shrinker_free(struct compat_shrinker *shrinker)
{
	unregister_shrinker(&shrinker->registered);
	kfree(shrinker);
}

#define shrinker		compat_shrinker
#define shrinker_alloc		compat_shrinker_alloc
#define shrinker_register	compat_shrinker_register
#define shrinker_free		compat_shrinker_free
#endif

/* Before 6.11, names and callbacks of the queues were arrays of their own. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 11, 0)
struct virtqueue_info {
	const char *name;
	vq_callback_t *callback;
	bool ctx;
};

#define COMPAT_MAX_VQS	8

static inline int compat_find_vqs(struct virtio_device *vdev,
				  unsigned int nr_vqs, struct virtqueue *vqs[],
				  struct virtqueue_info info[],
				  struct irq_affinity *affinity)
{
	vq_callback_t *callbacks[COMPAT_MAX_VQS];
	const char *names[COMPAT_MAX_VQS];
	bool ctx[COMPAT_MAX_VQS];
	unsigned int i;

	if (nr_vqs > COMPAT_MAX_VQS)
		return -EINVAL;
	for (i = 0; i < nr_vqs; i++) {
		callbacks[i] = info[i].callback;
		names[i] = info[i].name;
		ctx[i] = info[i].ctx;
	}
	return virtio_find_vqs_ctx(vdev, nr_vqs, vqs, callbacks, names, ctx,
				   affinity);
}

#define virtio_find_vqs		compat_find_vqs
#endif

#endif /* VIRTIO_BALLOON_COMPAT_H */
