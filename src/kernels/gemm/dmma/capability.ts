/** The compute capability of DMMA kernels. */

/** Hopper: other architectures have far fewer FP64 units than f32 units. */
export const dmmaCapability = "9.0";
