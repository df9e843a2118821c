/** Streams and what they are given to do, as the other files see them. */
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "graph.h"
#include "past.h"

namespace emulator {

struct Capture;

struct Stream {
  /** Does the legacy stream wait for it? */
  bool isBlocking = true;
  /** Work that waits; empty unless work is deferred. */
  std::deque<Work> queue;
  /** Of the latest work that has run, unless somebody has waited for it. */
  Pasts pasts;
  /** The capture that the stream is in, and the nodes behind which its next one comes. */
  std::shared_ptr<Capture> capture;
  std::vector<size_t> frontier;
};

Stream* findStream(uint64_t handle);
bool hasStream(uint64_t handle);
void forEachStream(const std::function<void(uint64_t, Stream&)>& visit);

/** Records the work where the stream captures, else runs it, or lets it wait. */
int submit(uint64_t stream, int nodeType, Work work);

/** Runs what waits in a stream, or in all; answers with the error of the device, if there is one. */
int finishWork(Stream& stream);
int finishAllWork();

/** Ends all captures, so that a test which failed in one leaves nothing behind. */
void dropCaptures();

size_t streamCount();
size_t eventCount();
size_t graphCount();
size_t executableCount();

}  // namespace emulator
