/** A capture: work of its streams is recorded as nodes of a graph, until it ends or an illegal call spoils it. */
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

/** Spoils a capture and answers with the status, or with that of a capture which was spoilt before. */
int spoil(Capture& capture, int status);

/** May the stream be given work? Rejects where its capture is spoilt, and the legacy stream next to a capture. */
int checkCapture(uint64_t stream);

/** What a stream in a capture does instead of running work. */
int record(Stream& stream, int nodeType, Work work);

/** A stream that goes away spoils the capture that it was in. */
void leaveCapture(uint64_t stream);

/** Lets a stream's later work come behind these nodes as well. */
void joinNodes(Stream& stream, const std::shared_ptr<Capture>& capture, const std::vector<size_t>& nodes);

}  // namespace emulator
