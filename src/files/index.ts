/** files: opens and reads regular files within limits, for every layer that reads what others may have written. */

export {
  type OpenedFile,
  openRegularFile,
  readRegularFile,
  readSpan,
  readTail,
} from "./regular-files.js";
