/**
 * What a compiled kernel's shared object and the stand-in of libcuda know of each other. The object exports one
 * `standin_module`. It is included by the emulation too, so it includes nothing.
 */
#pragma once

struct StandinPoint {
  unsigned x, y, z;
};

/** Where the running thread stands; written by libcuda before it runs or resumes one. */
struct StandinPlace {
  StandinPoint thread, block, blockSize, gridSize;
};

enum StandinExchange { standinWait, standinShuffle, standinBallot };

/** What the running thread asks of libcuda. */
struct StandinHooks {
  /** Waits for all threads of the block. */
  void (*barrier)(int line);
  /** Waits for the threads of the warp in the mask; answers with what a lane has brought, or with who said yes. */
  unsigned long long (*exchange)(StandinExchange kind, unsigned mask, unsigned long long value, unsigned source);
  /** Ends the launch with an error. */
  void (*fault)(int status, const char* what, int line);
};

struct StandinKernel {
  const char* name;
  /** Runs these threads one after the other, each to its end. */
  void (*run)(void** arguments, unsigned firstThread, unsigned endThread);
  unsigned parameterCount;
  const unsigned* sizes;
  const bool* isPointer;
  unsigned maxThreads;
  /** Do its threads wait for each other? */
  bool isCooperative;
};

struct StandinModule {
  StandinPlace* place;
  StandinHooks* hooks;
  char* sharedStart;
  char* sharedEnd;
  const StandinKernel* kernels;
  unsigned kernelCount;
};

/** Shared memory that a block may have without asking for more. */
enum { standinSharedLimit = 48 << 10, standinLaunchedSharedLimit = 227 << 10 };

/** What the stand-in of NVRTC hands out as machine code: this, and behind it the shared object. */
struct StandinImage {
  char magic[16];
  unsigned long long size;
  /** Names the object's file in the cache; ends with a zero. */
  char name[40];
  /** For which device it was compiled: 90 for 9.0. */
  unsigned architecture;
  unsigned reserved;
};

#define STANDIN_IMAGE_MAGIC "HOLDFAST KERNEL"
