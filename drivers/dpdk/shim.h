/* What drivers/src/dpdk/sys.rs sees of DPDK: DPDK's own structures and inline functions stay on this side. No decision
 * is taken here but how bytes are laid out in mbufs. Functions that can fail return 0 or a negative errno. */
#ifndef REBATE_DPDK_SHIM_H
#define REBATE_DPDK_SHIM_H

#include <stddef.h>
#include <stdint.h>

/* A line of DPDK's log; `level` is RTE_LOG_*. Not terminated. */
typedef void (*rebate_dpdk_log)(uint32_t level, const char *text, size_t bytes);

/* A compressdev, as far as deflate is concerned. */
struct rebate_dpdk_description {
	char name[64];
	char driver[64];
	uint16_t queue_pairs_max;	/* 0: no limit */
	uint8_t deflate;		/* the rest is 0 without it */
	uint8_t window_log2_min;
	uint8_t window_log2_max;
	uint8_t window_log2_step;
	uint8_t chains;			/* chained mbufs, both ways */
	uint8_t shareable;		/* one transform for many operations in flight */
	uint8_t dynamic;		/* dynamic Huffman codes */
};

/* One operation of a queue: `slot` must be free, the bytes stay where they are until it is back from dequeue. */
struct rebate_dpdk_request {
	void *transform;
	const void *input;
	void *output;
	uint32_t input_bytes;	/* above 0 */
	uint32_t output_bytes;	/* above 0 */
	uint32_t slot;
	uint32_t spill_bytes;	/* see rebate_dpdk_enqueue */
	uint32_t spill_ones;	/* ones rather than zeros */
};

/* What the device says of one operation. */
struct rebate_dpdk_report {
	uint32_t slot;
	uint32_t status;	/* enum rte_comp_op_status */
	uint32_t consumed;
	uint32_t produced;
};

struct rebate_dpdk_queue;

/* Once per process. Sends the log to `log` from then on. */
int rebate_dpdk_init(int argc, char **argv, rebate_dpdk_log log);
int rebate_dpdk_iova_is_va(void);
uint32_t rebate_dpdk_count(void);
int rebate_dpdk_describe(uint32_t device, struct rebate_dpdk_description *description);

/* Adds a device while EAL runs. */
int rebate_dpdk_probe(const char *arguments);

/* Configures and starts a device; once per device. */
int rebate_dpdk_start(uint32_t device, uint16_t queue_pairs, uint32_t ring, uint16_t transforms);

/* `level` is 0 for decompression. Not called for two threads at once. */
int rebate_dpdk_transform_new(uint32_t device, int level, int dynamic, uint8_t window_log2,
			      void **transform);
void rebate_dpdk_transform_free(uint32_t device, void *transform);

/* One thread's state for one queue pair: `depth` operations and `segments` mbufs. */
struct rebate_dpdk_queue *rebate_dpdk_queue_new(uint32_t device, uint16_t pair, uint32_t depth, uint32_t segments);
void rebate_dpdk_queue_free(struct rebate_dpdk_queue *queue);

/* 1 when the device took the operation, 0 when it or the queue's mbufs are full, and -1 - the status (enum
 * rte_comp_op_status) with which the driver refuses it.
 * With `spill_bytes` the input goes on, after its end, with so many bytes of zero or one bits, the first in a segment
 * of its own, and the output with one byte: a reader that misses the end of a stream consumes or produces more than
 * there is. */
int rebate_dpdk_enqueue(struct rebate_dpdk_queue *queue, const struct rebate_dpdk_request *request);
uint32_t rebate_dpdk_dequeue(struct rebate_dpdk_queue *queue, struct rebate_dpdk_report *reports, uint32_t max);

/* Memory that every device reaches; zeroed. */
void *rebate_dpdk_allocate(size_t bytes);
void rebate_dpdk_release(void *memory);

#endif
