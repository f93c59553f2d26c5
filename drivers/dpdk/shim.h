/* The interface of drivers/src/dpdk/sys.rs to DPDK. It hides DPDK's structures and inline functions. The shim
 * only decides how bytes are laid out in mbufs. Functions that can fail return 0 or a negative errno. */
#ifndef REBATE_DPDK_SHIM_H
#define REBATE_DPDK_SHIM_H

#include <stddef.h>
#include <stdint.h>

/* Receives a line of DPDK's log. `level` is RTE_LOG_*. The text is not terminated. */
typedef void (*rebate_dpdk_log)(uint32_t level, const char *text, size_t bytes);

/* A compressdev and its capabilities for deflate. */
struct rebate_dpdk_description {
	char name[64];
	char driver[64];
	uint16_t queue_pairs_max;	/* 0 for no limit */
	uint8_t deflate;		/* 1 if supported, otherwise the fields below are 0 */
	uint8_t window_log2_min;
	uint8_t window_log2_max;
	uint8_t window_log2_step;
	uint8_t chains;			/* 1 if input and output may be chained mbufs */
	uint8_t shareable;		/* 1 if operations in flight may share a transform */
	uint8_t dynamic;		/* 1 if it writes dynamic Huffman codes */
};

/* One operation of a queue. `slot` must be free. The bytes must stay in place until dequeue returns it. */
struct rebate_dpdk_request {
	void *transform;
	const void *input;
	void *output;
	uint32_t input_bytes;	/* above 0 */
	uint32_t output_bytes;	/* above 0 */
	uint32_t slot;
	uint32_t spill_bytes;	/* bytes appended to the input, see rebate_dpdk_enqueue */
	uint32_t spill_ones;	/* 1 if the appended bytes are one bits, 0 if zero bits */
};

/* The device's report of one operation. */
struct rebate_dpdk_report {
	uint32_t slot;
	uint32_t status;	/* enum rte_comp_op_status */
	uint32_t consumed;
	uint32_t produced;
};

struct rebate_dpdk_queue;

/* Starts EAL, once per process. From then on DPDK's log goes to `log`. */
int rebate_dpdk_init(int argc, char **argv, rebate_dpdk_log log);
int rebate_dpdk_iova_is_va(void);
uint32_t rebate_dpdk_count(void);
int rebate_dpdk_describe(uint32_t device, struct rebate_dpdk_description *description);

/* Adds a device to the running EAL. */
int rebate_dpdk_probe(const char *arguments);

/* Configures and starts a device, once per device. */
int rebate_dpdk_start(uint32_t device, uint16_t queue_pairs, uint32_t ring, uint16_t transforms);

/* Makes a transform. `level` is 0 for decompression. Two threads must not call this at the same time. */
int rebate_dpdk_transform_new(uint32_t device, int level, int dynamic, uint8_t window_log2,
			      void **transform);
void rebate_dpdk_transform_free(uint32_t device, void *transform);

/* Makes one thread's state for a queue pair: `depth` operations, `segments` mbufs. NULL if out of memory. */
struct rebate_dpdk_queue *rebate_dpdk_queue_new(uint32_t device, uint16_t pair, uint32_t depth, uint32_t segments);
void rebate_dpdk_queue_free(struct rebate_dpdk_queue *queue);

/* Returns 1 if the device accepted the operation, and 0 if the device is full or too few mbufs are free. If the
 * driver refuses the operation with a status (enum rte_comp_op_status), returns -1 - status.
 * If `spill_bytes` is above 0, that many bytes of zero or one bits follow the input, the first in a separate
 * segment, and one byte of space follows the output. A reader that misses the end of a stream then consumes or
 * produces more than the stated sizes. */
int rebate_dpdk_enqueue(struct rebate_dpdk_queue *queue, const struct rebate_dpdk_request *request);
uint32_t rebate_dpdk_dequeue(struct rebate_dpdk_queue *queue, struct rebate_dpdk_report *reports, uint32_t max);

/* Allocates zeroed memory that every device can access. Returns NULL if there is none. */
void *rebate_dpdk_allocate(size_t bytes);
void rebate_dpdk_release(void *memory);

#endif
