/*
 * segments.pml: the second law of docs/uniqueness.md, "Second law: segments", for
 * one tag whose marks are in JetStream alone.
 *
 *   "Every ID below the mark is spent: issued, in the memory of one worker, or a
 *   hole."
 *
 * Bounds: N workers, WRITES writes in all, two of them in flight at once, CRASHES
 * crashes; a load takes one or two IDs. Within them spin tries every interleaving.
 * With FIRST_USE the tag is made on first use, and the bucket is wiped once.
 *
 * At any time a worker may stand still; a write may be late, or lost, or only its
 * answer; a read may show an older entry; a process may die with its memory. `make
 * model` removes each rule and each assumption once, as README.md lists, and
 * expects a repeat.
 */
#ifndef N
#define N 2
#endif
#ifndef WRITES
#define WRITES 4
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef BUCKETS
#define BUCKETS 1
#endif
#define IDS (2 * WRITES + 3)

/* token: of the write that wrote the entry; first: made on first use, not loaded from
   yet. Mark 0: there is no entry. */
typedef Entry { byte mark; byte rev; byte token; bool first };

Entry bucket[BUCKETS];
Entry old[BUCKETS];     /* what was stored before the last write */
byte lastRev[BUCKETS];  /* "Revisions of a bucket start at its creation time": none comes twice */
bool identity = true;   /* "the key that is written when the bucket is made" */

Entry flight[2];        /* writes in flight: rev is what they expect; token 0: none */
byte to[2];             /* their bucket */
byte sent;              /* writes so far; the token of the last one */
byte crashes;
bool issued[IDS];

byte awaited[N];        /* the worker waits for the answer to this write; 0: for none */
byte answer[N];
#define NONE 0
#define ACKED 1
#define REFUSED 2

#define MAX(x, y) (((x) > (y)) -> (x) : (y))

inline copyEntry(x, y) { x.mark = y.mark; x.rev = y.rev; x.token = y.token; x.first = y.first }
inline clearEntry(x) { x.mark = 0; x.rev = 0; x.token = 0; x.first = false }

/* An answer reaches the worker that still waits for it. */
inline tell(w, what) {
	i = 0;
	do
	:: i < N && awaited[i] == flight[w].token -> answer[i] = what; i++
	:: i < N && awaited[i] != flight[w].token -> i++
	:: i == N -> break
	od;
	i = 0
}

/* JetStream carries out the writes in flight, in any order, or loses them. */
inline carryOut(w) {
	if
	:: true /* lost */
#ifdef NO_CAS
	:: true
#else
	:: flight[w].rev == bucket[to[w]].rev
#endif
	   -> copyEntry(old[to[w]], bucket[to[w]]);
	   lastRev[to[w]]++;
	   copyEntry(bucket[to[w]], flight[w]);
	   bucket[to[w]].rev = lastRev[to[w]];
	   if
	   :: tell(w, ACKED)
	   :: true /* the answer is lost */
	   fi
	:: flight[w].rev != bucket[to[w]].rev -> tell(w, REFUSED)
	fi;
	clearEntry(flight[w]); to[w] = 0
}

proctype JetStream() {
	byte i;
#ifdef RESTORED
	Entry copy;
	byte copies;
#endif
end:	do
	:: atomic { flight[0].token != 0 -> carryOut(0) }
	:: atomic { flight[1].token != 0 -> carryOut(1) }
#ifdef RESTORED
	:: atomic { copies == 0 -> copies = 1; copyEntry(copy, bucket[0]) }
	:: atomic { copies == 1 -> copies = 2; copyEntry(bucket[0], copy); lastRev[0] = copy.rev }
#endif
#ifdef LOSES_ACKED
	:: atomic { bucket[0].rev > old[0].rev -> copyEntry(bucket[0], old[0]); lastRev[0] = bucket[0].rev }
#endif
#ifdef FIRST_USE
	:: atomic { identity -> identity = false; clearEntry(bucket[0]); clearEntry(old[0]) }
#endif
	od
}

#define SHOW(x) m = x.mark; r = x.rev; t = x.token; first = x.first

/* "A read shows what was stored, perhaps long ago." */
inline read() {
	if
	:: SHOW(bucket[at])
	:: SHOW(old[at])
#ifdef REV_REUSED
	:: flight[0].token != 0 && flight[0].rev == bucket[at].rev -> SHOW(flight[0]); r = lastRev[at] + 1
	:: flight[1].token != 0 && flight[1].rev == bucket[at].rev -> SHOW(flight[1]); r = lastRev[at] + 1
#endif
	fi
}

inline put(w, mark_, first_) {
	flight[w].mark = mark_; flight[w].rev = r; flight[w].token = sent; flight[w].first = first_; to[w] = at
}

inline send(mark_, first_) {
	sent++;
	if
	:: flight[0].token == 0 -> put(0, mark_, first_)
	:: else -> put(1, mark_, first_)
	fi;
	awaited[me] = sent; answer[me] = NONE
}

#define CANSEND (sent < WRITES && (flight[0].token == 0 || flight[1].token == 0))

inline forget() {
	awaited[me] = 0; answer[me] = NONE; m = 0; r = 0; t = 0; first = false; a = 0; b = 0
}

/* Each ID of a range is issued once. */
inline issue() {
	do
	:: a < b -> assert(!issued[a]); issued[a] = true; a++
	:: else -> break
	od
}

#ifdef CLONED
bool cloned;
proctype Clone(byte a; byte b) { atomic { issue(); a = 0; b = 0 } }
#endif

#ifdef NO_IDENTITY
#define MAYMAKE true
#else
#define MAYMAKE identity  /* "Without it nothing is made on first use" */
#endif
#ifdef NO_RECHECK
#define MAYLOAD true
#else
#define MAYLOAD (!first || identity)
#endif

#ifdef KEPT_BY_END
#define MINE (m == last)
#else
#define MINE (t == kept)  /* "the entry read back bears that write's random token" */
#endif

#ifdef NO_FLOOR
#define FLOOR 0
#else
#define FLOOR floor
#endif

proctype Worker(byte me) {
	byte at = me % BUCKETS;
	byte m, r, t;          /* mark, revision and token that were read */
	bool first;
	byte a, b;             /* the range */
	byte floor;            /* "the highest range end that this process loaded" */
	byte n;
	byte kept, from, last; /* a range whose write is in doubt: its token, or 0 */
end:	do
	:: atomic { awaited[me] == 0 && CANSEND ->
		read();                               /* "read mark m at revision r" */
		if
		/* "A worker that had ranges of it does not create it on first use." */
		:: m == 0 && floor == 0 && MAYMAKE -> send(1, true); m = 0; r = 0
		:: m == 0 && !(floor == 0 && MAYMAKE) -> forget()
		:: m > 0 && !(MAYLOAD) -> forget()
		:: m > 0 && MAYLOAD ->
			if :: n = 1 :: n = 2 fi;
			if
			:: kept != 0 && MINE -> a = from /* what is kept gets longer */
			:: else ->
				a = MAX(m, FLOOR);    /* "a = max(m, floor)" */
				kept = 0; from = 0; last = 0
			fi;
			b = MAX(m, FLOOR) + n;        /* "b = a + max(n, step)" */
			send(b, false);               /* "write mark b by CAS on r" */
			m = 0; r = 0; t = 0; first = false; n = 0
		fi }
	:: atomic { awaited[me] != 0 && answer[me] == ACKED ->
		if
		:: b > 0 -> floor = b; kept = 0; from = 0; last = 0
		:: else
		fi;
		awaited[me] = 0; answer[me] = NONE;
#ifdef CLONED
		if
		:: b > 0 && !cloned -> cloned = true; run Clone(a, b)
		:: true
		fi
#endif
	   };
	   atomic { issue(); forget() }               /* "use [a, b) only if that CAS was acknowledged" */
	:: atomic { awaited[me] != 0 && answer[me] == REFUSED -> forget() }
	:: atomic { awaited[me] != 0 && answer[me] == NONE ->
		/* "A timeout or lost connection is ambiguous" */
		if
		:: b > 0 -> kept = awaited[me]; from = a; last = b
		:: else
		fi;
#ifdef UNACKED
		issue();
#endif
		forget() }
	:: atomic { crashes < CRASHES -> crashes++; floor = 0; kept = 0; from = 0; last = 0; forget() }
	od
}

init {
	atomic {
		byte w;
#ifndef FIRST_USE
		for (w : 0 .. BUCKETS - 1) { bucket[w].mark = 1; old[w].mark = 1 }
#endif
		run JetStream();
		for (w : 0 .. N - 1) { run Worker(w) }
	}
}
