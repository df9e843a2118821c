/** http: what Holdfast's servers share: limits of connections, host names, tokens, and answers to broken requests. */

export { answerBrokenRequests, type BrokenRequest } from "./broken-requests.js";
export { type ConnectionOptions, checkingIntervalOf, limitConnections } from "./connections.js";
export { hostsIn, hostsOf, isAddress, isLoopback, urlHost } from "./hosts.js";
export { type ListenAddress, listen } from "./listen.js";
export { isCrossSite } from "./origin.js";
export { bearerOf, isSameToken, makeToken, requireToken } from "./tokens.js";
