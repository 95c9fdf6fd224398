// Who has signed in: authorization code with PKCE at the issuer that the page names. The tokens stay in this tab.
import { T } from "./texts.js";

const LEAST_MILLISECONDS = 60_000; // that a token has left, or it is renewed
const SEND_SECONDS = 30;
const [PENDING, SESSION] = ["sign-in", "session"]; // names in the storage of this tab

// The session has ended, or there is none. The page then offers to sign in.
class SignedOutError extends Error {
  isSignedOut = true;
}

let [onEnd, onRenewal] = [() => {}, () => {}];

// Calls `hearEnd` with the reason whenever a request fails without a session, and `hearRenewal` when there is a new token.
export const listenToSession = (hearEnd, hearRenewal) => ([onEnd, onRenewal] = [hearEnd, hearRenewal]);

function signedOut(why) {
  onEnd(why);
  return new SignedOutError(why);
}

// Takes the issuer's answer out of the address before anything else sees it.
let answer = new URLSearchParams(location.search);
if (answer.has("state")) history.replaceState(null, "", location.pathname);

let issuer = null; // how to sign in; null if this desk has no sign-in
let renewal;

const stored = (name) => JSON.parse(sessionStorage.getItem(name));
const store = (name, value) => sessionStorage.setItem(name, JSON.stringify(value));
const encoded = (bytes) => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const random = () => encoded(crypto.getRandomValues(new Uint8Array(32)));
export const digest = async (text) => encoded(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text))));
const claimsOf = (token) => {
  const text = atob(token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/"));
  return JSON.parse(new TextDecoder().decode(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
};
// The desk has one page, and the issuer sends people back to its exact address.
const here = () => new URL("page.html", location).href;

// When the token ends, in milliseconds since 1970; until then it works, even if its user's roles are taken away. Undefined without one.
export const until = () => stored(SESSION)?.until;

export async function signIn() {
  const [state, nonce, verifier] = [random(), random(), random()];
  store(PENDING, { state, nonce, verifier, at: location.hash });
  const { clientId, scope, authorize } = issuer;
  const query = { response_type: "code", client_id: clientId, redirect_uri: here(), scope, state, nonce, code_challenge: await digest(verifier), code_challenge_method: "S256" };
  location.assign(`${authorize}?${new URLSearchParams(query)}`);
  return new Promise(() => {}); // the page is left
}

// Forgets the tokens and what was typed, and ends the session at the issuer: `logout_uri` is Cognito's name for the address to come back to.
export function signOut() {
  sessionStorage.clear();
  const query = { client_id: issuer.clientId, logout_uri: here(), post_logout_redirect_uri: here() };
  location.assign(`${issuer.signOut}?${new URLSearchParams(query)}`);
}

async function ask(grant) {
  const body = new URLSearchParams({ client_id: issuer.clientId, ...grant });
  const sent = { method: "POST", body, credentials: "omit", signal: AbortSignal.timeout(SEND_SECONDS * 1000) };
  const given = await fetch(issuer.token, sent).catch(() => Promise.reject(new Error(T.session.silent)));
  const said = await given.json().catch(() => ({}));
  if (!given.ok) throw Object.assign(new Error(T.session.refused(said.error_description ?? said.error ?? given.status)), { isFinal: given.status < 500 });
  return said;
}

// Keeps the tokens, if they are for this desk and an answer to its own request. API Gateway verifies the signature.
function keep({ id_token: token, refresh_token: refresh }, { nonce, sub, isRenewed = false }) {
  const claims = claimsOf(token);
  const isOurs = claims.iss === issuer.issuer && [claims.aud].flat().includes(issuer.clientId) && claims.exp > claims.iat;
  const isAnswer = isRenewed ? claims.sub === sub && (claims.nonce ?? nonce) === nonce : claims.nonce === nonce;
  if (!isOurs || !isAnswer) throw Object.assign(new Error(T.session.foreign), { isFinal: true });
  const before = stored(SESSION);
  if (before && before.sub !== claims.sub) sessionStorage.clear(); // what another person typed
  // By how long it lives: a phone's clock may be wrong.
  store(SESSION, { token, refresh: refresh ?? (isRenewed ? before.refresh : undefined), nonce, sub: claims.sub, until: Date.now() + 1000 * (claims.exp - claims.iat) });
}

async function finish(given) {
  const pending = stored(PENDING);
  sessionStorage.removeItem(PENDING);
  if (pending === null || given.get("state") !== pending.state) throw new Error(T.session.foreign);
  history.replaceState(null, "", location.pathname + pending.at);
  if (!given.has("code")) throw new Error(T.session.refused(given.get("error_description") ?? given.get("error")));
  keep(await ask({ grant_type: "authorization_code", code: given.get("code"), redirect_uri: here(), code_verifier: pending.verifier }), pending);
}

// Signs in, unless this tab has a session or this desk has no sign-in. `config` is `signIn` of the page.
export async function beginSession(config) {
  issuer = config;
  const given = answer;
  answer = new URLSearchParams();
  if (issuer === null) return;
  if (given.has("state")) await finish(given).catch(({ message }) => Promise.reject(signedOut(message)));
  else if (stored(SESSION) === null) await signIn();
}

async function renew(session) {
  if (session.refresh === undefined) return;
  // The reader may sign out before the issuer answers.
  const isThere = () => stored(SESSION) !== null;
  try {
    const given = await ask({ grant_type: "refresh_token", refresh_token: session.refresh });
    if (!isThere()) return;
    keep(given, { ...session, isRenewed: true });
    onRenewal();
  } catch (error) {
    // Until it ends, the token works on.
    if (error.isFinal && isThere()) store(SESSION, { ...session, refresh: undefined });
    else if (session.until <= Date.now()) throw error;
  }
}

// Returns the token for a request; undefined if this desk has no sign-in.
export async function bearer() {
  if (issuer === null) return undefined;
  const session = stored(SESSION);
  if (session !== null && session.until - Date.now() < LEAST_MILLISECONDS) await (renewal ??= renew(session).finally(() => (renewal = undefined)));
  const now = stored(SESSION);
  if (now === null || now.until <= Date.now()) throw ended();
  return now.token;
}

// The error of a request after the session has ended, or whose token the API refuses.
export const ended = () => signedOut(T.session.ended);
