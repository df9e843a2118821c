/**
 * A capture: work of its streams is recorded as nodes of a graph, until it ends or an illegal call
 * invalidates it.
 */
#pragma once

#include <cstdint>
#include <memory>
#include <thread>

#include "stream.h"

namespace emulator {

struct Capture {
  uint64_t origin;
  int mode;
  std::thread::id thread;
  std::shared_ptr<Graph> graph;
  uint64_t graphHandle;
  bool isSpoilt = false;
  bool isOpen = true;
};

/** Invalidates a capture and returns the status, or that of a capture which was invalid before. */
int invalidate(Capture& capture, int status);

/**
 * Checks that the stream accepts work. Rejects work if its capture is invalid, and the legacy stream next to
 * a capture.
 */
int checkCapture(uint64_t stream);

/** Records work of a stream in a capture instead of running it. */
int record(Stream& stream, int nodeType, Work work);

/** Destroying a stream invalidates its capture. */
void leaveCapture(uint64_t stream);

/** Makes a stream's later work depend on these nodes too. */
void joinNodes(Stream& stream, const std::shared_ptr<Capture>& capture, const std::vector<size_t>& nodes);

}  // namespace emulator
