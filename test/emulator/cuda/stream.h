/** Streams and their work, as the other files see them. */
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "graph.h"
#include "snapshot.h"

namespace emulator {

struct Capture;

struct Stream {
  /** True if the legacy stream waits for it. */
  bool isBlocking = true;
  /** Pending work; empty unless work is deferred. */
  std::deque<Work> queue;
  /** Of the latest work that has run, unless a call has waited for it. */
  Snapshots snapshots;
  /** The stream's capture, and the dependencies of its next node. */
  std::shared_ptr<Capture> capture;
  std::vector<size_t> frontier;
};

Stream* findStream(uint64_t handle);
bool hasStream(uint64_t handle);
void forEachStream(const std::function<void(uint64_t, Stream&)>& visit);

/** Records the work if the stream captures, otherwise runs or defers it. */
int submit(uint64_t stream, int nodeType, Work work);

/** Runs the pending work of a stream, or of all; returns the error of the device, if any. */
int runPendingWork(Stream& stream);
int runAllWork();

/** Ends all captures, so that a test that failed in one leaves nothing. */
void dropCaptures();

size_t streamCount();
size_t eventCount();
size_t graphCount();
size_t executableCount();

}  // namespace emulator
