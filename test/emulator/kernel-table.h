/**
 * What a compiled kernel's shared object and the emulator of libcuda know of each other. The object exports one
 * `emulator_module`. It is included by the emulation too, so it includes nothing.
 */
#pragma once

struct EmulatorPoint {
  unsigned x, y, z;
};

/** Where the running thread stands; written by libcuda before it runs or resumes one. */
struct EmulatorPlace {
  EmulatorPoint thread, block, blockSize, gridSize;
  /** The block's place in its cluster, and how many blocks that has. */
  unsigned rank, clusterSize;
  /** The shared memory that came with the launch, the block's own. */
  unsigned long long launched, launchedBytes;
};

enum EmulatorExchange { emulatorWait, emulatorShuffle, emulatorBallot };
/** The dtypes of the tensor cores' operands. */
enum EmulatorElement { emulatorBf16, emulatorF16, emulatorTf32 };
enum EmulatorGateAct { emulatorSetGate, emulatorPassGate, emulatorExpectAtGate, emulatorAwaitGate };

/** What the running thread asks of libcuda. */
struct EmulatorHooks {
  /** Waits for all threads of the block. */
  void (*barrier)(int line);
  /** Waits for the threads of the warp in the mask; answers with what a lane has brought, or with who said yes. */
  unsigned long long (*exchange)(EmulatorExchange kind, unsigned mask, unsigned long long value, unsigned source);
  /** Ends the launch with an error. */
  void (*fault)(int status, const char* what, int line);
  /** Waits until so many threads of the block have come to one of its numbered barriers. */
  void (*meet)(unsigned barrier, unsigned threads, int line);
  /** Says that the thread has come to the cluster's barrier; waits until all threads of the cluster have. */
  void (*arriveInCluster)(int line);
  void (*clusterSync)(int line);
  /** `number`: the arrivals that a gate takes, the bytes to expect, the parity of the phase to wait for. */
  void (*gate)(EmulatorGateAct act, unsigned long long* gate, unsigned number, int line);
  /** Copies from device memory to the block's own launched memory, and tells the gate how many bytes have come. */
  void (*bring)(void* to, const void* from, unsigned bytes, unsigned long long* gate, int line);
  /** The same with the box of a map that begins there. */
  void (*tmaLoad)(void* to, const void* map, int column, int row, int matrix, unsigned long long* gate, int line);
  /** Waits for the launch before this one. */
  void (*gridDependencyWait)();
  /** A thread's part of wgmma with both operands in shared memory, and with the left one in registers. */
  void (*multiplyTiles)(int element, unsigned columns, bool isAKMajor, bool isBKMajor, unsigned warpgroupThread,
                        float* sums, const unsigned char* left, const unsigned char* right);
  void (*multiplyRs)(unsigned columns, unsigned lane, float* sums, const double (*left)[4], const unsigned char* right);
};

struct EmulatorKernel {
  const char* name;
  /** Runs these threads one after the other, each to its end. */
  void (*run)(void** arguments, unsigned firstThread, unsigned endThread);
  unsigned parameterCount;
  const unsigned* sizes;
  const bool* isPointer;
  unsigned maxThreads;
  /** Do its threads wait for each other? */
  bool isCooperative;
  /** The blocks of a cluster; 1 where the kernel knows of none. */
  unsigned clusterSize;
};

struct EmulatorModule {
  EmulatorPlace* place;
  EmulatorHooks* hooks;
  char* sharedStart;
  char* sharedEnd;
  /** Launched memory of kernels without clusters. */
  char* launchedStart;
  char* launchedEnd;
  const EmulatorKernel* kernels;
  unsigned kernelCount;
};

/** Shared memory that a block may have without asking for more. */
enum { emulatorSharedLimit = 48 << 10, emulatorLaunchedSharedLimit = 227 << 10 };

/** The most blocks that a cluster has on every device, and how far their launched memories lie apart. */
enum { emulatorClusterLimit = 8, emulatorClusterStride = 320 << 10 };

/** What the emulator of NVRTC hands out as machine code: this, and behind it the shared object. */
struct EmulatorImage {
  char magic[16];
  unsigned long long size;
  /** Names the object's file in the cache; ends with a zero. */
  char name[40];
  /** For which device it was compiled: 90 for 9.0. */
  unsigned architecture;
  unsigned reserved;
};

#define EMULATOR_IMAGE_MAGIC "HOLDFAST KERNEL"
