/**
 * A process that tries a library as a world of one, for `try-library.ts`: MPI may end a process that it does not like, and a GPU may hang. It
 * prints one line of JSON. Arguments: the library, and the index of the GPU.
 */

import { openCudaDriver } from "../driver/index.js";
import { HoldfastError } from "../errors/index.js";
import { bytes, span } from "../units/index.js";
import { MpiCommunicator } from "./mpi/communicator.js";
import { NcclCommunicator } from "./nccl/communicator.js";
import { openNccl } from "./nccl/library.js";
import type { LibraryTrial } from "./try-library.js";

const [library = "mpi", index = "0"] = process.argv.slice(2);
/** NCCL's own limit is that of the process. */
const withinMs = 15_000;

function tryMpi(): string {
  const mpi = new MpiCommunicator();
  const sent = "sent by rank 0";
  const received = mpi.shareText(sent);
  const { name } = mpi;
  mpi.close();
  if (received !== sent) throw new Error(`${name} made "${received}" of "${sent}".`);
  return name;
}

function tryNccl(): string {
  const nccl = openNccl();
  const driver = openCudaDriver({ index: Number(index) });
  const memory = driver.reserve(bytes(4096));
  driver.commit(memory);
  const stream = driver.createStream();
  const host = driver.allocateHost(bytes(2048));
  const sent = { memory: host, offset: bytes(0), size: bytes(1024) };
  const received = { ...sent, offset: bytes(1024) };
  driver.hostBytes(sent).forEach((_, place, all) => {
    all[place] = place % 251;
  });
  const [from, to] = [span(memory.address, 1024), span(memory.address + 2048, 1024)];
  driver.copyToDevice(stream, from, sent);
  driver.synchronize(stream);
  const share = (id: Uint8Array | undefined): Uint8Array => id ?? new Uint8Array();
  const communicator = new NcclCommunicator({ nccl, rank: 0, size: 1, share, withinMs });
  const kernel = driver.loadKernel(communicator.allGather(1024));
  driver.launch(stream, { kernel, blocks: 1, arguments: [from, to] });
  driver.copyToHost(stream, received, to);
  driver.synchronize(stream);
  const isSame = driver.hostBytes(received).every((byte, place) => byte === place % 251);
  communicator.close();
  driver.close();
  if (!isSame) throw new Error(`${communicator.name} has changed the bytes of its only rank.`);
  return `${communicator.name}, ${nccl.path}`;
}

let trial: LibraryTrial;
try {
  trial = { name: library === "nccl" ? tryNccl() : tryMpi() };
} catch (error) {
  trial = {
    problem: error instanceof HoldfastError ? `${error.code}: ${error.message}` : (error as Error).message,
  };
}
console.log(JSON.stringify(trial));
