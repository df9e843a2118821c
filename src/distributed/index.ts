/**
 * distributed: several processes that train together. Who they are (the variables of launchers), and how they exchange bytes of device
 * memory: MPI between CPUs, NCCL between GPUs.
 */

export { clockOffsets } from "./clock-offsets.js";
export {
  type Communicator,
  patientObserver,
  type WaitObserver,
} from "./communicator.js";
export { init, localGpu } from "./init.js";
export { type Environment, type Launch, type Launcher, readLaunch } from "./launch/launch-variables.js";
export { MpiCommunicator, type MpiOptions } from "./mpi/communicator.js";
export { ncclVersions } from "./nccl/bindings.js";
export { NcclCommunicator, type NcclOptions } from "./nccl/communicator.js";
export { formatNcclVersion, type Nccl, openNccl } from "./nccl/library.js";
export type { RankIdentity } from "./peers/messages.js";
export { type LibraryTrial, tryLibrary } from "./try-library.js";
export { openWorld, type World, type WorldOptions } from "./world.js";
export { WorldCommunicator } from "./world-communicator.js";
