/** Events in a stream's work. In a capture they carry their preceding nodes into other streams. */
#include <chrono>

#include "capture.h"
#include "control.h"

namespace emulator {

namespace {

using Clock = std::chrono::steady_clock;

struct Event {
  bool hasTiming;
  uint64_t stream = 0;
  /** How often it was recorded, and the last record that was reached. */
  long recorded = 0;
  long reached = 0;
  Clock::time_point at;
  /** The nodes at which it was recorded in a capture. */
  std::shared_ptr<Capture> capture;
  std::vector<size_t> frontier;
};

Registry<Event> events(0xa0);

/** Runs the work before a record. */
void reach(uint64_t handle, long mark) {
  for (;;) {
    const Event* event = events.find(handle);
    if (event == nullptr || event->reached >= mark) return;
    Stream* stream = findStream(event->stream);
    if (stream == nullptr || stream->queue.empty()) return;
    const Work work = std::move(stream->queue.front());
    stream->queue.pop_front();
    if (const int status = work()) setStickyError(status, "");
  }
}

Work markOf(uint64_t handle, long mark) {
  return [=] {
    if (Event* event = events.find(handle)) {
      event->reached = mark;
      event->at = Clock::now();
    }
    return success;
  };
}

}  // namespace

size_t eventCount() { return events.size(); }

}  // namespace emulator

using namespace emulator;

EMULATOR_EXPORT int cuEventCreate(uint64_t* event, unsigned flags) {
  ENTER(context);
  if (event == nullptr || flags > 7) return invalidValue;
  Event made;
  made.hasTiming = (flags & 2) == 0;
  *event = events.add(std::move(made));
  return success;
}

EMULATOR_EXPORT int cuEventDestroy_v2(uint64_t event) {
  ENTER(context);
  return events.remove(event) ? success : invalidHandle;
}

EMULATOR_EXPORT int cuEventRecord(uint64_t handle, uint64_t streamHandle) {
  ENTER(context);
  Event* event = events.find(handle);
  Stream* stream = findStream(streamHandle);
  if (event == nullptr || stream == nullptr) return invalidHandle;
  if (const int rejected = checkCapture(streamHandle)) return rejected;
  event->capture = stream->capture;
  event->frontier = stream->frontier;
  if (stream->capture) return success;
  event->stream = streamHandle;
  event->recorded += 1;
  const Work mark = markOf(handle, event->recorded);
  if (setting("deferred")) stream->queue.push_back(mark);
  else mark();
  return success;
}

EMULATOR_EXPORT int cuStreamWaitEvent(uint64_t streamHandle, uint64_t handle, unsigned flags) {
  ENTER(context);
  const Event* event = events.find(handle);
  Stream* stream = findStream(streamHandle);
  if (event == nullptr || stream == nullptr) return invalidHandle;
  if (flags > 1) return invalidValue;
  if (const int rejected = checkCapture(streamHandle)) return rejected;
  if (event->capture) {
    if (!event->capture->isOpen) return capturedEvent;
    if (event->capture->isSpoilt) return captureInvalidated;
    if (streamHandle == 0) return invalidate(*event->capture, captureImplicit);
    if (stream->capture && stream->capture != event->capture) {
      invalidate(*stream->capture, captureMerge);
      return invalidate(*event->capture, captureMerge);
    }
    joinNodes(*stream, event->capture, event->frontier);
    return success;
  }
  if (stream->capture) return invalidate(*stream->capture, captureIsolation);
  const long mark = event->recorded;
  if (!setting("deferred") || mark == 0) return success;
  stream->queue.push_back([=] {
    reach(handle, mark);
    return stickyError();
  });
  return success;
}

EMULATOR_EXPORT int cuEventQuery(uint64_t handle) {
  ENTER_OUTSIDE_CAPTURE(context);
  const Event* event = events.find(handle);
  if (event == nullptr) return invalidHandle;
  if (event->capture) return event->capture->isOpen ? invalidate(*event->capture, capturedEvent) : int{capturedEvent};
  if (event->reached >= event->recorded) return success;
  // A query that returns "not ready" completes it for the next one.
  reach(handle, event->recorded);
  return notReady;
}

EMULATOR_EXPORT int cuEventSynchronize(uint64_t handle) {
  ENTER_OUTSIDE_CAPTURE(context);
  const Event* event = events.find(handle);
  if (event == nullptr) return invalidHandle;
  if (event->capture) return event->capture->isOpen ? invalidate(*event->capture, capturedEvent) : int{capturedEvent};
  reach(handle, event->recorded);
  return stickyError();
}

namespace emulator {

static int elapsedTime(float* ms, uint64_t startHandle, uint64_t endHandle) {
  const Event* start = events.find(startHandle);
  const Event* end = events.find(endHandle);
  if (ms == nullptr) return invalidValue;
  if (start == nullptr || end == nullptr || !start->hasTiming || !end->hasTiming) return invalidHandle;
  if (start->recorded == 0 || end->recorded == 0) return invalidHandle;
  if (start->reached < start->recorded || end->reached < end->recorded) return notReady;
  *ms = std::chrono::duration<float, std::milli>(end->at - start->at).count();
  return success;
}

}  // namespace emulator

EMULATOR_EXPORT int cuEventElapsedTime(float* ms, uint64_t start, uint64_t end) {
  ENTER(context);
  return elapsedTime(ms, start, end);
}

EMULATOR_EXPORT int cuEventElapsedTime_v2(float* ms, uint64_t start, uint64_t end) {
  ENTER(context);
  return elapsedTime(ms, start, end);
}
