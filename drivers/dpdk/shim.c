#define _GNU_SOURCE
#define ALLOW_EXPERIMENTAL_API /* DPDK marks all of compressdev as experimental */
#include "shim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <rte_comp.h>
#include <rte_compressdev.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

/* The most bytes in a single segment, and in each of several. The latter leaves space for the remainder. */
#define SEGMENT_BYTES_MAX 65535u
#define SEGMENT_BYTES 60000u
#define BURST_MAX 32u

static rebate_dpdk_log log_line;

static ssize_t write_log(void *cookie, const char *text, size_t bytes)
{
	(void)cookie;
	log_line((uint32_t)rte_log_cur_msg_loglevel(), text, bytes);
	return (ssize_t)bytes;
}

int rebate_dpdk_init(int argc, char **argv, rebate_dpdk_log log)
{
	cookie_io_functions_t functions = { .write = write_log };
	FILE *stream = fopencookie(NULL, "w", functions);

	if (stream == NULL)
		return -ENOMEM;
	setvbuf(stream, NULL, _IOLBF, BUFSIZ);
	log_line = log;
	rte_openlog_stream(stream);
	if (rte_eal_init(argc, argv) >= 0)
		return 0;
	/* Not every failure of EAL sets rte_errno, and 0 would mean that EAL runs. */
	return rte_errno > 0 ? -rte_errno : -EINVAL;
}

int rebate_dpdk_iova_is_va(void)
{
	return rte_eal_iova_mode() == RTE_IOVA_VA;
}

uint32_t rebate_dpdk_count(void)
{
	return rte_compressdev_count();
}

int rebate_dpdk_describe(uint32_t device, struct rebate_dpdk_description *description)
{
	const uint64_t both_ways = RTE_COMP_FF_OOP_SGL_IN_SGL_OUT;
	const struct rte_compressdev_capabilities *deflate;
	const char *name = rte_compressdev_name_get((uint8_t)device);
	struct rte_compressdev_info info = { 0 };

	memset(description, 0, sizeof(*description));
	if (name == NULL)
		return -ENODEV;
	rte_compressdev_info_get((uint8_t)device, &info);
	snprintf(description->name, sizeof(description->name), "%s", name);
	snprintf(description->driver, sizeof(description->driver), "%s",
		 info.driver_name == NULL ? "" : info.driver_name);
	description->queue_pairs_max = info.max_nb_queue_pairs;
	deflate = rte_compressdev_capability_get((uint8_t)device, RTE_COMP_ALGO_DEFLATE);
	if (deflate == NULL)
		return 0;
	description->deflate = 1;
	description->window_log2_min = deflate->window_size.min;
	description->window_log2_max = deflate->window_size.max;
	description->window_log2_step = deflate->window_size.increment;
	description->chains = (deflate->comp_feature_flags & both_ways) != 0;
	description->shareable = (deflate->comp_feature_flags & RTE_COMP_FF_SHAREABLE_PRIV_XFORM) != 0;
	description->dynamic = (deflate->comp_feature_flags & RTE_COMP_FF_HUFFMAN_DYNAMIC) != 0;
	return 0;
}

int rebate_dpdk_probe(const char *arguments)
{
	return rte_dev_probe(arguments);
}

int rebate_dpdk_start(uint32_t device, uint16_t queue_pairs, uint32_t ring, uint16_t transforms)
{
	const int socket = rte_compressdev_socket_id((uint8_t)device);
	struct rte_compressdev_config config = {
		.socket_id = socket,
		.nb_queue_pairs = queue_pairs,
		.max_nb_priv_xforms = transforms,
	};
	int status = rte_compressdev_configure((uint8_t)device, &config);

	for (uint16_t pair = 0; status == 0 && pair < queue_pairs; pair++)
		status = rte_compressdev_queue_pair_setup((uint8_t)device, pair, ring, socket);
	return status == 0 ? rte_compressdev_start((uint8_t)device) : status;
}

int rebate_dpdk_transform_new(uint32_t device, int level, int dynamic, uint8_t window_log2,
			      void **transform)
{
	struct rte_comp_xform wanted = { 0 };

	if (level == 0) {
		wanted.type = RTE_COMP_DECOMPRESS;
		wanted.decompress.algo = RTE_COMP_ALGO_DEFLATE;
		wanted.decompress.chksum = RTE_COMP_CHECKSUM_NONE;
		wanted.decompress.window_size = window_log2;
		wanted.decompress.hash_algo = RTE_COMP_HASH_ALGO_NONE;
	} else {
		wanted.type = RTE_COMP_COMPRESS;
		wanted.compress.algo = RTE_COMP_ALGO_DEFLATE;
		wanted.compress.deflate.huffman = dynamic ? RTE_COMP_HUFFMAN_DYNAMIC : RTE_COMP_HUFFMAN_FIXED;
		wanted.compress.level = level;
		wanted.compress.window_size = window_log2;
		wanted.compress.chksum = RTE_COMP_CHECKSUM_NONE;
		wanted.compress.hash_algo = RTE_COMP_HASH_ALGO_NONE;
	}
	return rte_compressdev_private_xform_create((uint8_t)device, &wanted, transform);
}

void rebate_dpdk_transform_free(uint32_t device, void *transform)
{
	rte_compressdev_private_xform_free((uint8_t)device, transform);
}

struct rebate_dpdk_queue {
	struct rte_mempool *op_pool;
	struct rte_mempool *mbuf_pool;
	struct rte_comp_op **ops;	/* by slot; each op stores its slot */
	struct rte_mbuf *free;		/* unused mbufs, linked by `next` */
	uint32_t free_count;
	uint32_t depth;
	uint8_t device;
	uint16_t pair;
	struct rte_mbuf_ext_shared_info shared;
	uint8_t spilled[64];		/* receives output beyond the stated size */
};

/* The bytes that are appended to an input. */
static const uint8_t zeros[SEGMENT_BYTES];
static const uint8_t ones[SEGMENT_BYTES] = { [0 ... SEGMENT_BYTES - 1] = 0xFF };

static void keep(void *address, void *opaque)
{
	(void)address;
	(void)opaque;
}

static uint32_t *slot_of(struct rte_comp_op *op)
{
	return (uint32_t *)(op + 1);
}

/* Only this thread uses the pools: their rings have one producer and one consumer, and no caches. */
static int fill_pools(struct rebate_dpdk_queue *queue, uint32_t segments)
{
	const int socket = rte_compressdev_socket_id(queue->device);
	char name[RTE_MEMPOOL_NAMESIZE];

	snprintf(name, sizeof(name), "rebate_op_%u_%u", queue->device, queue->pair);
	queue->op_pool = rte_comp_op_pool_create(name, queue->depth, 0, sizeof(uint32_t), socket);
	snprintf(name, sizeof(name), "rebate_mb_%u_%u", queue->device, queue->pair);
	queue->mbuf_pool = rte_pktmbuf_pool_create_by_ops(name, segments, 0, 0, 0, socket, "ring_sp_sc");
	if (queue->op_pool == NULL || queue->mbuf_pool == NULL)
		return -ENOMEM;
	for (uint32_t slot = 0; slot < queue->depth; slot++) {
		queue->ops[slot] = rte_comp_op_alloc(queue->op_pool);
		if (queue->ops[slot] == NULL)
			return -ENOMEM;
		*slot_of(queue->ops[slot]) = slot;
	}
	for (; queue->free_count < segments; queue->free_count++) {
		struct rte_mbuf *mbuf = rte_pktmbuf_alloc(queue->mbuf_pool);

		if (mbuf == NULL)
			return -ENOMEM;
		mbuf->next = queue->free;
		queue->free = mbuf;
	}
	return 0;
}

struct rebate_dpdk_queue *rebate_dpdk_queue_new(uint32_t device, uint16_t pair, uint32_t depth, uint32_t segments)
{
	struct rebate_dpdk_queue *queue = calloc(1, sizeof(*queue));

	if (queue == NULL)
		return NULL;
	queue->device = (uint8_t)device;
	queue->pair = pair;
	queue->depth = depth;
	queue->shared.free_cb = keep;
	rte_mbuf_ext_refcnt_set(&queue->shared, 1);
	queue->ops = calloc(depth, sizeof(*queue->ops));
	if (queue->ops == NULL || fill_pools(queue, segments) != 0) {
		rebate_dpdk_queue_free(queue);
		return NULL;
	}
	return queue;
}

/* Freeing a pool also frees the objects that were allocated from it. */
void rebate_dpdk_queue_free(struct rebate_dpdk_queue *queue)
{
	rte_mempool_free(queue->op_pool);
	rte_mempool_free(queue->mbuf_pool);
	free(queue->ops);
	free(queue);
}

static uint32_t segments_of(uint32_t bytes)
{
	return bytes <= SEGMENT_BYTES_MAX ? 1 : bytes / SEGMENT_BYTES + 1;
}

/* The caller has checked that an mbuf is free. */
static struct rte_mbuf *take(struct rebate_dpdk_queue *queue, const void *start, uint32_t bytes)
{
	struct rte_mbuf *mbuf = queue->free;

	queue->free = mbuf->next;
	queue->free_count--;
	rte_pktmbuf_attach_extbuf(mbuf, (void *)(uintptr_t)start, (rte_iova_t)(uintptr_t)start, (uint16_t)bytes,
				  &queue->shared);
	mbuf->data_len = (uint16_t)bytes;
	mbuf->next = NULL;
	mbuf->nb_segs = 1;
	mbuf->pkt_len = bytes;
	return mbuf;
}

/* Makes a chain of equal segments, of which the last is the longest, and returns the last. compress_isal takes a
 * shorter last segment for the end of the input if the output's segment ends just before it. */
static struct rte_mbuf *chain(struct rebate_dpdk_queue *queue, struct rte_mbuf **head, const void *start,
			      uint32_t bytes)
{
	const uint32_t count = segments_of(bytes), each = bytes / count;
	const uint8_t *next = start;
	struct rte_mbuf *last = NULL;

	for (uint32_t index = 0; index < count; index++) {
		const uint32_t length = index + 1 == count ? bytes - each * index : each;
		struct rte_mbuf *mbuf = take(queue, next, length);

		if (last == NULL)
			*head = mbuf;
		else
			last->next = mbuf;
		last = mbuf;
		next += length;
	}
	(*head)->nb_segs = (uint16_t)count;
	(*head)->pkt_len = bytes;
	return last;
}

static void append(struct rte_mbuf *head, struct rte_mbuf *last, struct rte_mbuf *mbuf)
{
	last->next = mbuf;
	head->nb_segs++;
	head->pkt_len += mbuf->data_len;
}

static void release_mbufs(struct rebate_dpdk_queue *queue, struct rte_mbuf *head)
{
	while (head != NULL) {
		/* The last appended segment links to itself. */
		struct rte_mbuf *next = head->next == head ? NULL : head->next;

		head->next = queue->free;
		queue->free = head;
		queue->free_count++;
		head = next;
	}
}

static void spill(struct rebate_dpdk_queue *queue, struct rte_comp_op *op, struct rte_mbuf *in_last,
		  struct rte_mbuf *out_last, const struct rebate_dpdk_request *request)
{
	const uint8_t *bits = request->spill_ones ? ones : zeros;
	struct rte_mbuf *rest;

	append(op->m_src, in_last, take(queue, bits, 1));
	rest = take(queue, bits, SEGMENT_BYTES);
	append(op->m_src, in_last->next, rest);
	rest->next = rest;
	op->src.length += request->spill_bytes;
	op->m_src->pkt_len = op->src.length;
	append(op->m_dst, out_last, take(queue, queue->spilled, 1));
}

int rebate_dpdk_enqueue(struct rebate_dpdk_queue *queue, const struct rebate_dpdk_request *request)
{
	struct rte_comp_op *op = queue->ops[request->slot];
	struct rte_mbuf *in_last, *out_last;

	if (segments_of(request->input_bytes) + segments_of(request->output_bytes) + 3 > queue->free_count)
		return 0;
	in_last = chain(queue, &op->m_src, request->input, request->input_bytes);
	out_last = chain(queue, &op->m_dst, request->output, request->output_bytes);
	op->op_type = RTE_COMP_OP_STATELESS;
	op->private_xform = request->transform;
	op->src.offset = 0;
	op->src.length = request->input_bytes;
	op->dst.offset = 0;
	op->flush_flag = RTE_COMP_FLUSH_FINAL;
	op->input_chksum = 0;
	op->output_chksum = 0;
	op->consumed = 0;
	op->produced = 0;
	op->debug_status = 0;
	op->status = RTE_COMP_OP_STATUS_NOT_PROCESSED;
	if (request->spill_bytes > 0)
		spill(queue, op, in_last, out_last, request);
	if (rte_compressdev_enqueue_burst(queue->device, queue->pair, &op, 1) == 1)
		return 1;
	release_mbufs(queue, op->m_src);
	release_mbufs(queue, op->m_dst);
	/* A driver that refuses an operation for its content sets the status. A full queue does not change it. */
	return op->status == RTE_COMP_OP_STATUS_NOT_PROCESSED ? 0 : -1 - (int)op->status;
}

uint32_t rebate_dpdk_dequeue(struct rebate_dpdk_queue *queue, struct rebate_dpdk_report *reports, uint32_t max)
{
	struct rte_comp_op *ops[BURST_MAX];
	const uint16_t wanted = (uint16_t)RTE_MIN(max, BURST_MAX);
	const uint16_t count = rte_compressdev_dequeue_burst(queue->device, queue->pair, ops, wanted);

	for (uint16_t index = 0; index < count; index++) {
		struct rte_comp_op *op = ops[index];

		reports[index] = (struct rebate_dpdk_report) {
			.slot = *slot_of(op),
			.status = op->status,
			.consumed = op->consumed,
			.produced = op->produced,
		};
		release_mbufs(queue, op->m_src);
		release_mbufs(queue, op->m_dst);
		op->m_src = NULL;
		op->m_dst = NULL;
	}
	return count;
}

void *rebate_dpdk_allocate(size_t bytes)
{
	return rte_zmalloc("rebate", bytes, RTE_CACHE_LINE_SIZE);
}

void rebate_dpdk_release(void *memory)
{
	rte_free(memory);
}
