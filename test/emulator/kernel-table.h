/**
 * The interface between a compiled kernel's shared object and the emulator of libcuda. The object exports
 * `emulator_module_NAME` for each of its modules. The emulation includes this file too, so it includes nothing.
 */
#pragma once

struct EmulatorPoint {
  unsigned x, y, z;
};

/** The position of the running thread; libcuda writes it before it runs or resumes one. */
struct EmulatorPosition {
  EmulatorPoint thread, block, blockSize, gridSize;
  /** The block's rank in its cluster, and the number of the cluster's blocks. */
  unsigned rank, clusterSize;
  /** The block's dynamic shared memory. */
  unsigned long long dynamicShared, dynamicSharedBytes;
};

enum EmulatorExchange { emulatorWait, emulatorShuffle, emulatorBallot };
/** The dtypes of the tensor cores' operands. */
enum EmulatorElement { emulatorBf16, emulatorF16, emulatorTf32 };
enum EmulatorMbarrierOp { emulatorMbarrierInit, emulatorMbarrierArrive, emulatorMbarrierArriveExpectTx, emulatorMbarrierWait };

/** Functions of libcuda that the running thread calls. */
struct EmulatorHooks {
  /** Waits for all threads of the block. */
  void (*barrier)(int line);
  /** Waits for the threads of the warp in the mask; returns a lane's value, or the ballot. */
  unsigned long long (*exchange)(EmulatorExchange kind, unsigned mask, unsigned long long value, unsigned source);
  /** Ends the launch with an error. */
  void (*fault)(int status, const char* what, int line);
  /** Waits until `count` threads of the block have reached one of its numbered barriers. */
  void (*namedBarrierSync)(unsigned barrier, unsigned threads, int line);
  /** Arrives at the cluster's barrier; waits until all threads of the cluster have arrived. */
  void (*clusterArrive)(int line);
  void (*clusterWait)(int line);
  /** `number`: the arrivals of an mbarrier, the bytes to expect, or the parity of the phase to wait for. */
  void (*mbarrier)(EmulatorMbarrierOp op, unsigned long long* mbarrier, unsigned number, int line);
  /**
   * Copies from device memory to the block's own dynamic shared memory, and reports the bytes to the
   * mbarrier.
   */
  void (*cpAsyncBulk)(void* to, const void* from, unsigned bytes, unsigned long long* mbarrier, int line);
  /** The same with the box of a tensor map that begins at these coordinates. */
  void (*tmaLoad)(void* to, const void* map, int column, int row, int matrix, unsigned long long* mbarrier, int line);
  /**
   * Copies a box from shared memory to device memory. A thread's copies since its last commit are a group; `bulkWaitRead` waits until at
   * most `pending` of its groups still read shared memory.
   */
  void (*tmaStore)(const void* map, const void* from, int column, int row, int matrix, int line);
  void (*bulkCommit)();
  void (*bulkWaitRead)(unsigned pending);
  /** Waits for the preceding launch (griddepcontrol.wait). */
  void (*gridDependencyWait)();
  /**
   * A thread's part of wgmma with both operands in shared memory, and with A in registers. Its result is there after the wait for its
   * group.
   */
  void (*wgmmaSs)(int element, unsigned columns, bool isAKMajor, bool isBKMajor, bool accumulates, unsigned warpgroupThread,
                        float* acc, const unsigned char* left, const unsigned char* right);
  void (*wgmmaRs)(unsigned columns, unsigned lane, float* acc, const double (*left)[4], const unsigned char* right);
  /** The same with 16-bit elements, two in a register. `leadingBytes`: between blocks of 64 columns of an MN-major B. */
  void (*wgmmaRsHalves)(int element, unsigned columns, bool isBKMajor, bool accumulates, unsigned lane, float* acc, const unsigned (*left)[4],
                        const unsigned char* right, unsigned leadingBytes);
  /** The thread's products since its last commit are a group. */
  void (*wgmmaCommit)();
  /** Waits until at most `left` groups of the thread are incomplete. */
  void (*wgmmaWait)(unsigned left);
};

struct EmulatorKernel {
  const char* name;
  /** Runs these threads one after the other, each to its end. */
  void (*run)(void** arguments, unsigned firstThread, unsigned endThread);
  unsigned parameterCount;
  const unsigned* sizes;
  /** Of what each parameter points to; 0 for one that is no pointer. */
  const unsigned* pointeeAlignments;
  unsigned maxThreads;
  /** True if its threads wait for each other. */
  bool isCooperative;
  /** The blocks of a cluster; 1 for a kernel without clusters. */
  unsigned clusterSize;
};

struct EmulatorModule {
  EmulatorPosition* position;
  EmulatorHooks* hooks;
  char* sharedStart;
  char* sharedEnd;
  /** Dynamic shared memory of kernels without clusters. */
  char* dynamicSharedStart;
  char* dynamicSharedEnd;
  const EmulatorKernel* kernels;
  unsigned kernelCount;
};

/** Shared memory that a block may have without opting in to more. */
enum { emulatorSharedLimit = 48 << 10, emulatorDynamicSharedLimit = 227 << 10 };

/**
 * The maximal number of blocks in a cluster on every device, and the distance of their dynamic shared
 * memories.
 */
enum { emulatorClusterLimit = 8, emulatorClusterStride = 320 << 10 };

/** The machine code that the emulator of NVRTC returns: this header, followed by the shared object. */
struct EmulatorImage {
  char magic[16];
  unsigned long long size;
  /** The module's name, which is also that of the object's file in the cache; ends with a zero. */
  char name[40];
  /** The compute capability that it was compiled for: 90 for 9.0. */
  unsigned architecture;
  unsigned reserved;
};

#define EMULATOR_IMAGE_MAGIC "HOLDFAST KERNEL"
