/** Programmatic dependent launch (griddepcontrol), and the declaration of dynamic shared memory. */

import { device, type Intrinsic, onlyOnDevice } from "./intrinsic.js";
import { namedBarrierSync } from "./wgmma.js";

export const launchIntrinsics = {
  /**
   * griddepcontrol.wait, then griddepcontrol.launch_dependents. Triggering only after the wait guarantees that all launches older than
   * the predecessor have completed.
   */
  gridDependencyWait: {
    code: onlyOnDevice(`${device} void gridDependencyWait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\\ngriddepcontrol.launch_dependents;" ::: "memory");
#endif
}`),
  },
  /** bar.sync of the threads of one team of a block. `barrier`: 1 to 15. */
  namedBarrierSync: { code: onlyOnDevice(namedBarrierSync) },
  /** Declares the dynamic shared memory of the launch, which may exceed the 48 KiB of static shared memory. */
  dynamicSharedMemory: {
    code: onlyOnDevice(
      "#define dynamicSharedMemory(name, bytes) extern __shared__ __align__(16) unsigned char name[]",
    ),
  },
  /** The same at a multiple of 1024 bytes, as tiles in the 128-byte swizzle need it. So their addresses are constants. */
  swizzledSharedMemory: {
    code: onlyOnDevice(
      "#define swizzledSharedMemory(name, bytes) extern __shared__ __align__(1024) unsigned char name[]",
    ),
  },
} satisfies Record<string, Intrinsic>;

/** C++: the declaration that every kernel with a `gridDependencyWait` needs. */
export const pdlDeclaration = `${launchIntrinsics.gridDependencyWait.code}\n\n`;

/** C++: the first line of a kernel that reads nothing before its predecessor has completed. */
export const pdlWait = "  gridDependencyWait();\n";
