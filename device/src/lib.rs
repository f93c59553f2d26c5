//! The device contract: jobs, buffers and pools, queues; CPU codecs and the devices made of them.
