/**
 * distributed: several processes that train together. Who they are (the variables of launchers), and how they exchange bytes of device
 * memory: MPI between CPUs.
 */

export {
  type Communicator,
  type CommunicatorKind,
  patientObserver,
  type WaitObserver,
} from "./communicator.js";
export { init } from "./init.js";
export { type Environment, type Launch, type Launcher, readLaunch } from "./launch/launch-variables.js";
export { MpiCommunicator, type MpiOptions } from "./mpi/communicator.js";
export type { RankIdentity } from "./peers/messages.js";
export { openWorld, type World, type WorldOptions } from "./world.js";
