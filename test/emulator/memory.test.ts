/**
 * The emulator's memory: the rules of the virtual memory API, a device that can be full, and checked
 * addresses.
 */

import assert from "node:assert/strict";
import test, { afterEach } from "node:test";
import { BareCuda } from "../support/bare-cuda.js";
import { emulatorMissing, openEmulator } from "../support/emulator.js";

const skip = emulatorMissing;
const emulator = skip ? undefined! : openEmulator();
const bare = skip ? undefined! : new BareCuda(emulator.folder);
const { driver } = skip ? ({} as BareCuda["cuda"]) : bare.cuda;
const [property, access] = skip ? [] : [bare.memoryProperty(), bare.memoryAccess()];

afterEach(() => {
  if (!skip) emulator.reset();
});

const MiB = 2 ** 20;
const invalidValue = 1;
const outOfMemory = 2;
const notSupported = 801;

const reserve = (size: number) => bare.make((to) => driver.cuMemAddressReserve(to, size, 0, 0, 0));
const create = (size: number) => bare.make((to) => driver.cuMemCreate(to, size, property!.address, 0));

test("memory is reserved, created, mapped, made accessible and freed", { skip }, () => {
  const range = reserve(64 * 1024 * MiB);
  assert.equal(range % (2 * MiB), 0);
  assert.equal(emulator.get("usedMemory"), 0);
  const handle = create(4 * MiB);
  assert.equal(emulator.get("usedMemory"), 4 * MiB);
  driver.cuMemMap(range + 2 * MiB, 4 * MiB, 0, handle, 0);
  assert.equal(driver.status.cuMemsetD8Async(range + 2 * MiB, 7, 16, 0), invalidValue);
  driver.cuMemSetAccess(range + 2 * MiB, 4 * MiB, access!.address, 1);
  driver.cuMemsetD8Async(range + 2 * MiB, 7, 4 * MiB, 0);
  assert.deepEqual([...bare.read(range + 6 * MiB - 2, new Uint8Array(2))], [7, 7]);
  // A byte before and a byte after.
  assert.equal(driver.status.cuMemsetD8Async(range + 2 * MiB - 1, 7, 2, 0), invalidValue);
  assert.equal(driver.status.cuMemsetD8Async(range + 2 * MiB, 7, 4 * MiB + 1, 0), invalidValue);

  assert.equal(driver.status.cuMemAddressFree(range, 64 * 1024 * MiB), invalidValue);
  driver.cuMemRelease(handle);
  assert.equal(emulator.get("usedMemory"), 4 * MiB);
  driver.cuMemUnmap(range + 2 * MiB, 4 * MiB);
  assert.equal(emulator.get("usedMemory"), 0);
  assert.equal(driver.status.cuMemUnmap(range + 2 * MiB, 4 * MiB), invalidValue);
  assert.equal(driver.status.cuMemAddressFree(range, 2 * MiB), invalidValue);
  driver.cuMemAddressFree(range, 64 * 1024 * MiB);
  assert.equal(emulator.get("reservations"), 0);
});

test("adjacent mappings are one range for a copy, and can't be unmapped in part", { skip }, () => {
  const range = reserve(8 * MiB);
  const handles = [create(2 * MiB), create(4 * MiB)] as const;
  driver.cuMemMap(range, 2 * MiB, 0, handles[0], 0);
  driver.cuMemMap(range + 2 * MiB, 4 * MiB, 0, handles[1], 0);
  driver.cuMemSetAccess(range, 6 * MiB, access!.address, 1);
  driver.cuMemsetD8Async(range + 2 * MiB - 4, 9, 8, 0);
  assert.deepEqual([...bare.read(range + 2 * MiB - 4, new Uint8Array(8))], Array(8).fill(9));
  assert.equal(driver.status.cuMemUnmap(range + 2 * MiB, 2 * MiB), invalidValue);
  assert.equal(driver.status.cuMemMap(range + 4 * MiB, 2 * MiB, 0, create(2 * MiB), 0), invalidValue);
  assert.equal(driver.status.cuMemSetAccess(range, 8 * MiB, access!.address, 1), invalidValue);
  driver.cuMemUnmap(range, 6 * MiB);
});

test("sizes and addresses must be multiples of 2 MiB", { skip }, () => {
  driver.cuMemGetAllocationGranularity(bare.out.address, property!.address, 0);
  assert.equal(bare.out.u64(), 2 * MiB);
  const { status } = driver;
  assert.equal(status.cuMemAddressReserve(bare.out.address, MiB, 0, 0, 0), invalidValue);
  assert.equal(status.cuMemCreate(bare.out.address, 3 * MiB, property!.address, 0), invalidValue);
  const [range, handle] = [reserve(4 * MiB), create(2 * MiB)];
  assert.equal(status.cuMemMap(range + MiB, 2 * MiB, 0, handle, 0), invalidValue);
  assert.equal(status.cuMemMap(range + 4 * MiB, 2 * MiB, 0, handle, 0), invalidValue);
  assert.equal(status.cuMemMap(range, 4 * MiB, 0, handle, 0), invalidValue);
});

test("a device is full when its memory is used, no matter by which process", { skip }, () => {
  const used = emulator.get("usedMemory");
  emulator.set("totalMemory", used + 16 * MiB);
  const block = bare.allocate(8 * MiB);
  assert.equal(driver.status.cuMemCreate(bare.out.address, 10 * MiB, property!.address, 0), outOfMemory);
  driver.cuMemGetInfo_v2(bare.out.address, bare.out.address + 8);
  assert.deepEqual([bare.out.u64(), bare.out.u64(8)], [8 * MiB, used + 16 * MiB]);
  emulator.set("foreignMemory", 6 * MiB);
  assert.equal(driver.status.cuMemAlloc_v2(bare.out.address, 4 * MiB), outOfMemory);
  driver.cuMemFree_v2(block);
  assert.equal(driver.status.cuMemFree_v2(block), invalidValue);
  driver.cuMemFree_v2(bare.allocate(10 * MiB));
});

test("a device without the virtual memory API reports that, and one that only claims to have it does not map", {
  skip,
}, () => {
  emulator.set("canMap", 0);
  const [range, handle] = [reserve(2 * MiB), create(2 * MiB)];
  assert.equal(bare.attribute(102), 1);
  assert.equal(driver.status.cuMemMap(range, 2 * MiB, 0, handle, 0), notSupported);
  driver.cuMemRelease(handle);
  emulator.set("virtualMemory", 0);
  assert.equal(bare.attribute(102), 0);
  assert.equal(driver.status.cuMemAddressReserve(bare.out.address, 2 * MiB, 0, 0, 0), notSupported);
});

test("copies and fills of memory that is not device memory are rejected", { skip }, () => {
  const memory = bare.allocate(64);
  const host = bare.make((to) => driver.cuMemHostAlloc(to, 64, 0));
  const { status } = driver;
  assert.equal(status.cuMemcpyHtoDAsync_v2(host, host, 64, 0), invalidValue);
  assert.equal(status.cuMemcpyHtoDAsync_v2(memory, host, 65, 0), invalidValue);
  assert.equal(status.cuMemcpyDtoHAsync_v2(host, memory + 1, 64, 0), invalidValue);
  assert.equal(status.cuMemcpyDtoDAsync_v2(memory, host, 64, 0), invalidValue);
  assert.equal(status.cuMemcpyDtoDAsync_v2(memory, memory + 32, 32, 0), 0);
  driver.cuMemFreeHost(host);
  assert.equal(status.cuMemFreeHost(host), invalidValue);
});
