/**
 * Captures and their rules. A capturing thread must not allocate, free, synchronize or query, except in the
 * relaxed mode; in the global mode no other thread may either. The first illegal call returns 900 and
 * invalidates the capture. Later calls return 901, and so does its end.
 */
#include "capture.h"

#include <algorithm>

#include "control.h"

namespace emulator {

namespace {

std::vector<std::shared_ptr<Capture>> captures;  // the open ones
thread_local int threadMode = globalMode;

/** Removes every stream from a capture and deletes it. */
void close(const std::shared_ptr<Capture>& capture) {
  forEachStream([&](uint64_t, Stream& stream) {
    if (stream.capture != capture) return;
    stream.capture.reset();
    stream.frontier.clear();
  });
  capture->isOpen = false;
  captures.erase(std::remove(captures.begin(), captures.end(), capture), captures.end());
}

/** True if all recorded nodes precede these nodes, or are among them. */
bool reachesAll(const Graph& graph, const std::vector<size_t>& from) {
  std::vector<bool> isReached(graph.nodes.size(), false);
  for (const size_t node : from) isReached[node] = true;
  for (size_t node = graph.nodes.size(); node-- > 0;) {
    if (!isReached[node]) return false;
    for (const size_t before : graph.nodes[node].after) isReached[before] = true;
  }
  return true;
}

}  // namespace

int invalidate(Capture& capture, int status) {
  if (capture.isSpoilt) return captureInvalidated;
  capture.isSpoilt = true;
  return status;
}

int rejectInCapture() {
  if (threadMode == relaxedMode) return success;
  int answer = success;
  for (const auto& capture : captures) {
    const bool isOwn = capture->thread == std::this_thread::get_id() && capture->mode != relaxedMode;
    const bool isForeign = capture->mode == globalMode && threadMode == globalMode;
    if (isOwn || isForeign) answer = invalidate(*capture, captureUnsupported);
  }
  return answer;
}

int checkCapture(uint64_t handle) {
  const Stream* stream = findStream(handle);
  if (stream->capture) return stream->capture->isSpoilt ? captureInvalidated : success;
  if (handle != 0) return success;
  for (const auto& capture : captures) {
    if (findStream(capture->origin)->isBlocking) return invalidate(*capture, captureImplicit);
  }
  return success;
}

int record(Stream& stream, int nodeType, Work work) {
  stream.frontier = {addNode(*stream.capture->graph, nodeType, std::move(work), stream.frontier)};
  return success;
}

void leaveCapture(uint64_t handle) {
  const std::shared_ptr<Capture> capture = findStream(handle)->capture;
  if (!capture) return;
  invalidate(*capture, captureInvalidated);
  if (capture->origin != handle) return;
  removeGraph(capture->graphHandle);
  close(capture);
}

void joinNodes(Stream& stream, const std::shared_ptr<Capture>& capture, const std::vector<size_t>& nodes) {
  stream.capture = capture;
  for (const size_t node : nodes) {
    const auto& known = stream.frontier;
    if (std::find(known.begin(), known.end(), node) == known.end()) stream.frontier.push_back(node);
  }
}

void dropCaptures() {
  while (!captures.empty()) {
    const std::shared_ptr<Capture> capture = captures.back();
    removeGraph(capture->graphHandle);
    close(capture);
  }
}

}  // namespace emulator

using namespace emulator;

EMULATOR_EXPORT int cuStreamBeginCapture_v2(uint64_t handle, int mode) {
  ENTER(context);
  Stream* stream = findStream(handle);
  if (stream == nullptr) return invalidHandle;
  if (mode < globalMode || mode > relaxedMode) return invalidValue;
  count(mode == threadLocalMode ? "captures.threadLocal" : mode == globalMode ? "captures.global" : "captures.relaxed");
  if (handle == 0) return captureUnsupported;
  if (stream->capture) return illegalState;
  auto graph = std::make_shared<Graph>();
  const uint64_t graphHandle = addGraph(graph);
  stream->capture = std::make_shared<Capture>(Capture{handle, mode, std::this_thread::get_id(), graph, graphHandle});
  captures.push_back(stream->capture);
  return success;
}

EMULATOR_EXPORT int cuStreamEndCapture(uint64_t handle, uint64_t* graph) {
  ENTER(context);
  Stream* stream = findStream(handle);
  if (stream == nullptr) return invalidHandle;
  if (graph == nullptr) return invalidValue;
  *graph = 0;
  if (!stream->capture) return illegalState;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture->origin != handle) return invalidate(*capture, captureUnmatched);
  if (capture->mode != relaxedMode && capture->thread != std::this_thread::get_id()) return captureWrongThread;
  const bool isCombined = reachesAll(*capture->graph, stream->frontier);
  close(capture);
  if (capture->isSpoilt || !isCombined) {
    removeGraph(capture->graphHandle);
    return capture->isSpoilt ? captureInvalidated : captureUnjoined;
  }
  *graph = capture->graphHandle;
  return success;
}

EMULATOR_EXPORT int cuStreamIsCapturing(uint64_t handle, int* status) {
  ENTER(context);
  const Stream* stream = findStream(handle);
  if (stream == nullptr) return invalidHandle;
  if (status == nullptr) return invalidValue;
  *status = !stream->capture ? 0 : stream->capture->isSpoilt ? 2 : 1;
  return success;
}

/** Also returns the graph that is being recorded; the last three results are optional. */
EMULATOR_EXPORT int cuStreamGetCaptureInfo_v2(uint64_t handle, int* status, uint64_t* id, uint64_t* graph,
                                             const uint64_t** nodes, size_t* count) {
  ENTER(context);
  const Stream* stream = findStream(handle);
  if (stream == nullptr) return invalidHandle;
  if (status == nullptr) return invalidValue;
  *status = !stream->capture ? 0 : stream->capture->isSpoilt ? 2 : 1;
  if (*status != 1) return success;
  if (id != nullptr) *id = stream->capture->graphHandle;
  if (graph != nullptr) *graph = stream->capture->graphHandle;
  static thread_local std::vector<uint64_t> frontier;
  frontier.clear();
  for (const size_t node : stream->frontier) frontier.push_back(stream->capture->graph->nodes[node].handle);
  if (nodes != nullptr) *nodes = frontier.data();
  if (count != nullptr) *count = frontier.size();
  return success;
}

EMULATOR_EXPORT int cuThreadExchangeStreamCaptureMode(int* mode) {
  ENTER(init);
  if (mode == nullptr || *mode < globalMode || *mode > relaxedMode) return invalidValue;
  if (*mode == relaxedMode) count("captures.relaxed");
  std::swap(*mode, threadMode);
  return success;
}

/** Adds a node of some kind to a stream's capture, for tests of invalid graphs. */
EMULATOR_EXPORT int emulator_inject(uint64_t handle, int nodeType) {
  std::lock_guard<std::recursive_mutex> hold(lock());
  Stream* stream = findStream(handle);
  if (stream == nullptr || !stream->capture) return illegalState;
  return record(*stream, nodeType, nullptr);
}
