/** Streams and their work: copies, fills, launches. Work runs at once unless it is deferred. */
#include "stream.h"

#include <cstring>

#include "capture.h"
#include "control.h"
#include "memory.h"

namespace emulator {

namespace {

Registry<Stream> streams(0x90);
/** The stream of handle 0, which waits for all blocking streams. */
Stream legacyStream;

int runNow(const Work& work) {
  const int status = work();
  if (status == success) return success;
  setStickyError(status, "");
  return setting("blocking") ? status : success;
}

}  // namespace

Stream* findStream(uint64_t handle) { return handle == 0 ? &legacyStream : streams.find(handle); }
bool hasStream(uint64_t handle) { return findStream(handle) != nullptr; }
size_t streamCount() { return streams.size(); }

void forEachStream(const std::function<void(uint64_t, Stream&)>& visit) {
  visit(0, legacyStream);
  for (auto& [handle, stream] : streams) visit(handle, stream);
}

int runPendingWork(Stream& stream) {
  while (!stream.queue.empty()) {
    if (stickyError() != success) {
      stream.queue.clear();
      break;
    }
    const Work work = std::move(stream.queue.front());
    stream.queue.pop_front();
    if (const int status = work()) setStickyError(status, "");
  }
  stream.snapshots.clear();
  return stickyError();
}

int runAllWork() {
  forEachStream([](uint64_t, Stream& stream) { runPendingWork(stream); });
  return stickyError();
}

int submit(uint64_t handle, int nodeType, Work work) {
  Stream* stream = findStream(handle);
  if (stream == nullptr) return invalidHandle;
  if (const int rejected = checkCapture(handle)) return rejected;
  if (stream->capture) return record(*stream, nodeType, std::move(work));
  Work serialized = [=] { return runAfter(stream->snapshots, nodeType, work); };
  if (setting("deferred")) {
    stream->queue.push_back(std::move(serialized));
    return success;
  }
  return runNow(serialized);
}

namespace {

int copy(uint64_t target, uint64_t source, size_t size, uint64_t stream) {
  return submit(stream, copyNode, [=] {
    std::memmove(reinterpret_cast<void*>(target), reinterpret_cast<const void*>(source), size);
    return success;
  });
}

/**
 * Any host memory is accepted, also in a capture: that a replay then reads memory which may have moved is
 * CUDA's trap, not its error.
 */
int checkHost(uint64_t address) { return address == 0 ? invalidValue : success; }

}  // namespace

}  // namespace emulator

using namespace emulator;

int emulator_submit(uint64_t stream, int nodeType, int (*run)(const void*), const void* data, size_t size) {
  std::lock_guard<std::recursive_mutex> hold(lock());
  if (const int sticky = stickyError()) return sticky;
  auto copied = std::make_shared<std::vector<uint64_t>>((size + 7) / 8);
  std::memcpy(copied->data(), data, size);
  return submit(stream, nodeType, [run, copied] { return run(copied->data()); });
}

EMULATOR_EXPORT int cuStreamCreateWithPriority(uint64_t* stream, unsigned flags, int priority) {
  ENTER(context);
  if (stream == nullptr || flags > 1) return invalidValue;
  // Kernels run one after the other here, so the priority is only recorded.
  note("priority of the latest stream", priority);
  Stream made;
  made.isBlocking = flags == 0;
  *stream = streams.add(std::move(made));
  return success;
}

EMULATOR_EXPORT int cuStreamDestroy_v2(uint64_t handle) {
  ENTER(context);
  Stream* stream = streams.find(handle);
  if (stream == nullptr) return invalidHandle;
  runPendingWork(*stream);
  leaveCapture(handle);
  streams.remove(handle);
  return success;
}

EMULATOR_EXPORT int cuStreamSynchronize(uint64_t handle) {
  ENTER_OUTSIDE_CAPTURE(context);
  Stream* stream = findStream(handle);
  if (stream == nullptr) return invalidHandle;
  if (stream->capture) return invalidate(*stream->capture, captureUnsupported);
  return handle == 0 ? runAllWork() : runPendingWork(*stream);
}

EMULATOR_EXPORT int cuStreamQuery(uint64_t handle) {
  ENTER_OUTSIDE_CAPTURE(context);
  Stream* stream = findStream(handle);
  if (stream == nullptr) return invalidHandle;
  if (stream->capture) return invalidate(*stream->capture, captureUnsupported);
  if (stream->queue.empty()) return success;
  // A query that returns "not ready" completes it for the next one.
  runPendingWork(*stream);
  return notReady;
}

EMULATOR_EXPORT int cuCtxSynchronize() {
  ENTER_OUTSIDE_CAPTURE(context);
  return runAllWork();
}

EMULATOR_EXPORT int cuMemcpyHtoDAsync_v2(uint64_t target, uint64_t source, size_t size, uint64_t stream) {
  ENTER(context);
  if (!holdsDevice(target, size)) return invalidValue;
  if (const int rejected = checkHost(source)) return rejected;
  return copy(target, source, size, stream);
}

EMULATOR_EXPORT int cuMemcpyDtoHAsync_v2(uint64_t target, uint64_t source, size_t size, uint64_t stream) {
  ENTER(context);
  if (!holdsDevice(source, size)) return invalidValue;
  if (const int rejected = checkHost(target)) return rejected;
  return copy(target, source, size, stream);
}

EMULATOR_EXPORT int cuMemcpyDtoDAsync_v2(uint64_t target, uint64_t source, size_t size, uint64_t stream) {
  ENTER(context);
  if (!holdsDevice(target, size) || !holdsDevice(source, size)) return invalidValue;
  return copy(target, source, size, stream);
}

EMULATOR_EXPORT int cuMemsetD8Async(uint64_t target, unsigned char value, size_t size, uint64_t stream) {
  ENTER(context);
  if (!holdsDevice(target, size)) return invalidValue;
  return submit(stream, fillNode, [=] {
    std::memset(reinterpret_cast<void*>(target), value, size);
    return success;
  });
}
