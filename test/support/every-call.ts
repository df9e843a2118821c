/** One legal use of every driver call, on a prepared device. */

import { basicKernels, type Driver, type DriverCall } from "holdfast/internals";
import { bytes, span } from "../../src/units/index.js";

/** Prepares a device; each entry then makes its one call on any wrapper of that device. */
export function everyCall(device: Required<Driver>): Record<DriverCall, (driver: Driver) => unknown> {
  const size = bytes(65536);
  const reservation = device.reserve(size);
  device.commit(reservation);
  const [first, second] = [span(reservation.address, 256), span(reservation.address + 256, 256)];
  device.annotate(first, "live");
  device.annotate(second, "live");
  const empty = device.reserve(size);
  const stream = device.createStream();
  const event = device.createEvent();
  const memory = device.allocateHost(bytes(256));
  const host = { memory, offset: bytes(0), size: bytes(256) };
  const kernel = device.loadKernel(basicKernels.fill);
  device.beginCapture(stream, "thread-local");
  device.fill(stream, first, 1);
  const graph = device.endCapture(stream);
  device.instantiate(graph);
  return {
    describe: (driver) => driver.describe(),
    memory: (driver) => driver.memory(),
    reserve: (driver) => driver.reserve(size),
    commit: (driver) => driver.commit(empty),
    release: (driver) => driver.release(empty),
    annotate: (driver) => driver.annotate?.(second, "dead"),
    recall: (driver) => driver.recall?.("key"),
    remember: (driver) => driver.remember?.("key", "note"),
    allocateHost: (driver) => driver.allocateHost(size),
    hostBytes: (driver) => driver.hostBytes(host),
    freeHost: (driver) => driver.freeHost(memory),
    createStream: (driver) => driver.createStream(),
    destroyStream: (driver) => driver.destroyStream(stream),
    createEvent: (driver) => driver.createEvent(),
    destroyEvent: (driver) => driver.destroyEvent(event),
    recordEvent: (driver) => driver.recordEvent(event, stream),
    waitEvent: (driver) => driver.waitEvent(stream, event),
    isReached: (driver) => driver.isReached(event),
    synchronizeEvent: (driver) => driver.synchronizeEvent(event),
    synchronize: (driver) => driver.synchronize(stream),
    copyToDevice: (driver) => driver.copyToDevice(stream, first, host),
    copyToHost: (driver) => driver.copyToHost(stream, host, first),
    copyOnDevice: (driver) => driver.copyOnDevice(stream, first, second),
    fill: (driver) => driver.fill(stream, first, 2),
    compileKernels: (driver) => driver.compileKernels?.([basicKernels.add]),
    loadKernel: (driver) => driver.loadKernel(basicKernels.add),
    unloadKernel: (driver) => driver.unloadKernel(kernel),
    launch: (driver) => driver.launch(stream, { kernel, blocks: 1, arguments: [first, 1, 64] }),
    beginCapture: (driver) => driver.beginCapture(stream, "thread-local"),
    endCapture: (driver) => {
      device.beginCapture(stream, "thread-local");
      return driver.endCapture(stream);
    },
    instantiate: (driver) => driver.instantiate(graph),
    launchGraph: (driver) => driver.launchGraph(stream, graph),
    destroyGraph: (driver) => driver.destroyGraph(graph),
    close: (driver) => driver.close(),
  };
}
