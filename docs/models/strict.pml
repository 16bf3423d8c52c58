/*
 * strict.pml: the third law of docs/uniqueness.md, for one strict tag whose marks are
 * in JetStream.
 *
 *   "A strict request is served only from one load, whose CAS of the mark is sent after
 *   the request arrived."
 *
 * The assertion is the promise: if a request is sent after the answer to another has
 * arrived, its ID is higher, whichever workers answered.
 *
 * Bounds: N workers, REQUESTS requests for one ID each, WRITES writes in all, two of them
 * in flight at once, CRASHES crashes; a load takes an ID for each request that joined it,
 * and perhaps one more. Within them spin tries every interleaving.
 *
 * As in segments.pml, a worker may stand still at any time; a write may be late, or lost,
 * or only its answer; a process may die with its memory. A read may show an older entry,
 * and may lie any time before the write: neither matters. A request arrives at once, and
 * so does an answer: a delay of either only makes more requests concurrent.
 */
#ifndef N
#define N 2
#endif
#ifndef REQUESTS
#define REQUESTS 3
#endif
#ifndef WRITES
#define WRITES 3
#endif
#ifndef CRASHES
#define CRASHES 1
#endif

/* token: of the write that wrote the entry; before: of the write before that one */
typedef Entry { byte mark; byte rev; byte token; byte before }

Entry bucket, old;      /* what is stored, and what was before the last write */
Entry flight[2];        /* writes in flight: rev is what they expect; token 0: none */
byte lastRev;
byte sent;              /* writes so far; the token of the last one */
byte crashes;

byte awaited[N];        /* the worker waits for the answer to this write; 0: for none */
byte answer[N];
#ifdef REFUSAL_REV
byte named[N];          /* the revision that a refusal names */
#endif
#define NONE 0
#define ACKED 1
#define REFUSED 2

byte highest;           /* of the IDs in answers that have arrived */
byte asked;             /* requests so far */
byte state[REQUESTS];
byte at[REQUESTS];      /* the worker that the request is at */
byte had[REQUESTS];     /* highest, when the request was sent */
#define WAITS 1
#define JOINED 2
#define ANSWERED 3

#ifdef REFUSAL_REV
#define NAME(w) named[w] = bucket.rev
#else
#define NAME(w) skip
#endif
#define MAX(x, y) (((x) > (y)) -> (x) : (y))

inline copyEntry(x, y) { x.mark = y.mark; x.rev = y.rev; x.token = y.token; x.before = y.before }
inline clearEntry(x) { x.mark = 0; x.rev = 0; x.token = 0; x.before = 0 }

/* An answer reaches the worker that still waits for it. */
inline tell(w, what) {
	i = 0;
	do
	:: i < N && awaited[i] == flight[w].token -> answer[i] = what; NAME(i); i++
	:: i < N && awaited[i] != flight[w].token -> i++
	:: i == N -> break
	od;
	i = 0
}

/* JetStream carries out the writes in flight, in any order, or loses them. */
inline carryOut(w) {
	if
	:: true /* lost */
	:: flight[w].rev == bucket.rev ->
		copyEntry(old, bucket);
		lastRev++;
		copyEntry(bucket, flight[w]);
		bucket.rev = lastRev;
		bucket.before = old.token;
		if
		:: tell(w, ACKED)
		:: true /* the answer is lost */
		fi
	:: flight[w].rev != bucket.rev -> tell(w, REFUSED)
	fi;
	clearEntry(flight[w])
}

proctype JetStream() {
	byte i;
end:	do
	:: atomic { flight[0].token != 0 -> carryOut(0) }
	:: atomic { flight[1].token != 0 -> carryOut(1) }
#ifdef LOSES_ACKED
	:: atomic { bucket.rev > old.rev -> copyEntry(bucket, old); lastRev = bucket.rev }
#endif
	od
}

proctype Callers() {
	byte w;
end:	do
	:: atomic { asked < REQUESTS ->
		select (w : 0 .. N - 1);
		had[asked] = highest; at[asked] = w; state[asked] = WAITS;
#ifdef JOINS_SENT
		if
		:: awaited[w] != 0 -> state[asked] = JOINED
		:: else
		fi;
#endif
		asked++; w = 0 }
	od
}

inline send(mark_) {
	sent++;
	if
	:: flight[0].token == 0 -> flight[0].mark = mark_; flight[0].rev = r; flight[0].token = sent
	:: else -> flight[1].mark = mark_; flight[1].rev = r; flight[1].token = sent
	fi;
	awaited[me] = sent; answer[me] = NONE
}

#define CANSEND (sent < WRITES && (flight[0].token == 0 || flight[1].token == 0))

/* Requests of this worker go from one state to another; n is how many. */
inline move(from_, to_) {
	n = 0; i = 0;
	do
	:: i < asked && at[i] == me && state[i] == from_ -> state[i] = to_; n++; i++
	:: i < asked && !(at[i] == me && state[i] == from_) -> i++
	:: i == asked -> break
	od;
	i = 0
}

inline forget() { awaited[me] = 0; answer[me] = NONE; m = 0; r = 0; t = 0; t2 = 0; a = 0; b = 0; n = 0 }

/* The next ID of the range goes to a request in this state, if there is one. */
inline serve(from_) {
	i = 0;
	do
	:: i < asked && at[i] == me && state[i] == from_ && a < b ->
		assert(a > had[i]);                   /* the promise */
		state[i] = ANSWERED; highest = MAX(highest, a); a++;
		break
	:: i < asked && !(at[i] == me && state[i] == from_ && a < b) -> i++
	:: i == asked -> break
	od;
	i = 0
}

proctype Worker(byte me) {
	byte m, r, t, t2;      /* mark, revision and tokens that were read; r 0: nothing was */
	byte a, b;             /* the range */
	byte floor;            /* "the highest range end that this process loaded" */
	byte n, i;
	byte kept, from, last; /* a range whose write is in doubt: its token, or 0 */
	bool holds;            /* [a, b) may be used */
end:	do
	:: atomic { r == 0 && awaited[me] == 0 && !holds && sent < WRITES ->
		if
		:: m = bucket.mark; r = bucket.rev; t = bucket.token; t2 = bucket.before
		:: old.rev != 0 -> m = old.mark; r = old.rev; t = old.token; t2 = old.before
		fi;
#ifdef USES_KEPT
		/* The range is this worker's, and nobody else has it: but it is of long ago. */
		if
		:: kept != 0 && (t == kept || t2 == kept) ->
			move(WAITS, JOINED); a = from; b = last; kept = 0; from = 0; last = 0; n = 0; holds = true
		:: true
		fi
#endif
	   }
	:: atomic { r != 0 && awaited[me] == 0 && !holds && CANSEND ->
		move(WAITS, JOINED);                  /* whoever has arrived by now joins */
		if
		:: n == 0
		:: n > 0 ->
			if :: true :: n++ fi;
			if
			/* "What a load leaves is a hole, and so is a kept range, unless its write is the
			   entry's last: then the next CAS raises from there." */
			:: kept != 0 && t == kept -> a = from
			:: else -> a = MAX(m, floor); kept = 0; from = 0; last = 0
			fi;
			b = MAX(m, floor) + n;
			send(b);
			m = 0; t = 0; t2 = 0; n = 0
		fi }
	:: atomic { awaited[me] != 0 && answer[me] == ACKED ->
		floor = b; kept = 0; from = 0; last = 0; awaited[me] = 0; answer[me] = NONE; r = 0; holds = true }
	:: atomic { awaited[me] != 0 && answer[me] == REFUSED ->
		move(JOINED, WAITS);
#ifdef REFUSAL_REV
		/* The entry is not read again: the refusal has named its revision. */
		m = MAX(floor, 1);
		awaited[me] = 0; answer[me] = NONE; r = named[me]; named[me] = 0; a = 0; b = 0; n = 0
#else
		forget()
#endif
	   }
	:: atomic { awaited[me] != 0 && answer[me] == NONE ->
		/* "A timeout or lost connection is ambiguous" */
#ifdef USES_AMBIGUOUS
		awaited[me] = 0; r = 0; holds = true
#else
		kept = awaited[me]; from = a; last = b;
		move(JOINED, WAITS); forget()
#endif
	   }
	:: atomic { holds ->                          /* one answer at a time */
		serve(JOINED);
		move(JOINED, JOINED);
		if
		:: n == 0 ->
#ifdef SERVES_MEMORY
			serve(WAITS);
			if :: a == b -> holds = false; a = 0; b = 0 :: else fi
#else
			holds = false; a = 0; b = 0           /* what is left is a hole */
#endif
		:: a == b && n > 0 -> holds = false; a = 0; b = 0; move(JOINED, WAITS)
		:: a < b && n > 0
		fi;
		n = 0 }
	:: atomic { crashes < CRASHES -> crashes++;
		move(WAITS, ANSWERED); move(JOINED, ANSWERED);      /* by nobody */
		floor = 0; kept = 0; from = 0; last = 0; holds = false; forget() }
	od
}

init {
	atomic {
		byte w;
		bucket.mark = 1; bucket.rev = 1; lastRev = 1;
		run JetStream();
		run Callers();
		for (w : 0 .. N - 1) { run Worker(w) }
	}
}
