/** CUDA's status codes that the emulator returns or accepts. */
#pragma once

namespace emulator {

enum Status : int {
  success = 0,
  invalidValue = 1,
  outOfMemory = 2,
  notInitialized = 3,
  noDevice = 100,
  invalidDevice = 101,
  invalidImage = 200,
  invalidContext = 201,
  noBinaryForGpu = 209,
  invalidHandle = 400,
  illegalState = 401,
  notFound = 500,
  notReady = 600,
  illegalAddress = 700,
  illegalInstruction = 715,
  misalignedAddress = 716,
  launchFailed = 719,
  notSupported = 801,
  captureUnsupported = 900,
  captureInvalidated = 901,
  captureMerge = 902,
  captureUnmatched = 903,
  captureUnjoined = 904,
  captureIsolation = 905,
  captureImplicit = 906,
  capturedEvent = 907,
  captureWrongThread = 908,
  invalidClusterSize = 912,
};

enum NodeType : int { kernelNode = 0, copyNode = 1, fillNode = 2, hostNode = 3, graphNode = 4, memAllocNode = 10 };

enum CaptureMode : int { globalMode = 0, threadLocalMode = 1, relaxedMode = 2 };

}  // namespace emulator
