/*
 * snowflakes.pml: the first law of docs/uniqueness.md, "First law: snowflakes", for
 * one worker number.
 *
 *   "By (1) and (2), windows of different owners of w are disjoint. (3) keeps two
 *   lives of one owner apart, and (4) two IDs of one life."
 *
 * Bounds: N workers with a disk each, ticks 0 .. T - 1, a horizon of H ticks, WRITES
 * writes of the record in all, two of them in flight at once, CRASHES crashes. One
 * tick is one ID: positions within a tick add nothing to the law. Each reading of a
 * clock is any tick at all, whatever was read before, here or elsewhere: "No
 * assumption is about clocks." Nobody asks who has the number: questions "only
 * decide which number is acquired and when".
 *
 * At any time a worker may stand still; a write may be late, or lost, or only its
 * answer; a read may show an older record; a process may die and begin its next
 * life on its disk. `make model` removes each rule and each assumption once, as
 * README.md lists, and expects a repeat.
 */
#ifndef N
#define N 2
#endif
#ifndef T
#define T 4
#endif
#ifndef WRITES
#define WRITES 3
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#define H 2

typedef Record { byte until; byte rev; byte token };

Record record;        /* of the number; token 0: there is none */
Record old;           /* what was stored before the last write */
Record flight[2];     /* writes in flight: rev is what they expect */
byte id[2];           /* of the writes in flight; 0: none */
byte sent;            /* writes so far; the id of the last one */
byte crashes;
bool issued[T];       /* "puts tick t, number w ... into an ID" */

byte awaited[N];      /* the worker waits for the answer to this write; 0: for none */
byte answer[N];
#define NONE 0
#define ACKED 1
#define REFUSED 2

typedef Disk { byte token, rev, until, fence }; /* token 0: no claim */
Disk disk[N];         /* the state files */

#define MAX(x, y) ((x) > (y) -> (x) : (y))
#define MIN(x, y) ((x) < (y) -> (x) : (y))

inline copyRecord(to, what) { to.until = what.until; to.rev = what.rev; to.token = what.token }

/* An answer reaches the worker that still waits for it. */
inline tell(w, what) {
	i = 0;
	do
	:: i < N && awaited[i] == id[w] -> answer[i] = what; i++
	:: i < N && awaited[i] != id[w] -> i++
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
	:: flight[w].rev == record.rev
#endif
	   -> copyRecord(old, record);
	   record.until = flight[w].until; record.rev = record.rev + 1; record.token = flight[w].token;
	   if
	   :: tell(w, ACKED)
	   :: true /* the answer is lost */
	   fi
	:: flight[w].rev != record.rev -> tell(w, REFUSED)
	fi;
	id[w] = 0; flight[w].token = 0; flight[w].until = 0; flight[w].rev = 0
}

proctype JetStream() {
	byte i;
#ifdef RESTORED
	Record copy;
	byte copies;
#endif
#ifdef LOSES_ACKED
	bool once;
#endif
end:	do
	:: atomic { id[0] != 0 -> carryOut(0) }
	:: atomic { id[1] != 0 -> carryOut(1) }
#ifdef RESTORED
	:: atomic { copies == 0 -> copies = 1; copyRecord(copy, record) }
	:: atomic { copies == 1 -> copies = 2; copyRecord(record, copy) }
#endif
#ifdef WIPED
	:: atomic { record.token != 0 && record.rev < 100 ->
		record.until = 0; record.token = 0; record.rev = 100; copyRecord(old, record) }
#endif
#ifdef LOSES_ACKED
	:: atomic { !once && record.rev > old.rev -> once = true; copyRecord(record, old) }
#endif
	od
}

#ifdef REV_REUSED
#define REV(w) (record.rev + 1)
#else
#define REV(w) (200 + id[w])
#endif

/* A read shows what is stored, or what was, or what a deposed leader took and may lose.
   What is lost gives its revision to no other write. */
inline read() {
	if
	:: u = record.until; r = record.rev; k = record.token
	:: u = old.until; r = old.rev; k = old.token
	:: id[0] != 0 && flight[0].rev == record.rev -> u = flight[0].until; r = REV(0); k = flight[0].token
	:: id[1] != 0 && flight[1].rev == record.rev -> u = flight[1].until; r = REV(1); k = flight[1].token
	fi
}

#define CANSEND (sent < WRITES && awaited[me] == 0 && (id[0] == 0 || id[1] == 0))

#ifdef ONE_TOKEN
#define TOKEN 1
#else
#define TOKEN sent    /* "a fresh random token" */
#endif

inline put(w, until_, rev_) {
	id[w] = sent; flight[w].until = until_; flight[w].rev = rev_; flight[w].token = TOKEN
}

inline send(until_, rev_) {
	sent++;
	if
	:: id[0] == 0 -> put(0, until_, rev_)
	:: else -> put(1, until_, rev_)
	fi;
	awaited[me] = sent; answer[me] = NONE; goal = until_; based = rev_; mine = TOKEN
}

inline drop() { awaited[me] = 0; answer[me] = NONE; goal = 0; based = 0; mine = 0 }

#ifdef NO_ORDER
#define ORDER true
#else
#define ORDER (now >= next)
#endif
#ifdef NO_FENCE
#define FENCE true
#else
#define FENCE (now < disk[me].fence)
#endif

#ifdef RELEASES_BELOW
#define END ((next > from) -> next : 0)
#else
#define END next      /* "until' = max(from, end of the last tick issued)" */
#endif

inline clock() { select (now : 0 .. T - 1) }

inline remember(fence_) {
	disk[me].token = token; disk[me].rev = rev; disk[me].until = until; disk[me].fence = fence_
}

inline down() {
	mode = DOWN; from = 0; until = 0; next = 0; token = 0; rev = 0; doubt = 0; drop()
}

mtype = { DOWN, CLAIMING, HELD, OPEN, CLOSED, FORGOTTEN, RELEASING };

proctype Worker(byte me) {
	mtype mode = DOWN;
	byte from, until;          /* the window */
	byte next;                 /* the lowest tick that was not passed yet */
	byte token, rev;           /* of the last acknowledged write */
	byte doubt;                /* token of a write whose outcome is unknown; 0: none */
	byte goal, based, mine;    /* of the write that is awaited: until, revision, token */
	byte u, r, k, now;
end:	do
	/* A number is acquired, or resumed. */
	:: atomic { mode == DOWN && CANSEND ->
		read(); clock();
		if
		:: disk[me].token != 0 && k == disk[me].token ->
			from = MAX(disk[me].fence, now)  /* "from' = max(fence, now), by CAS on this worker's own token" */
		:: else ->
#ifdef FROM_NOW
			from = now
#else
			from = MAX(u, now)               /* "(2) from >= until'" */
#endif
		fi;
		next = from;
		now = MIN(MAX(MAX(u, from), now + H), T);
		send(now, r);
		mode = CLAIMING; u = 0; r = 0; k = 0; now = 0 }
	:: atomic { mode == CLAIMING && answer[me] != ACKED -> down() }
	/* "resumed while the registry is away: from' = max(fence, now), until as in the state file, no write" */
	:: atomic { mode == DOWN && disk[me].token != 0 ->
		clock();
		from = MAX(disk[me].fence, now); next = from; until = disk[me].until; token = disk[me].token; rev = disk[me].rev;
		mode = HELD; now = 0 }

	/* "Only an acknowledged write moves until forward; a read never does." */
	:: atomic { (mode == CLAIMING || mode == OPEN) && answer[me] == ACKED ->
		until = goal; token = mine; rev = based + 1; doubt = 0; drop();
		if :: mode == CLAIMING -> mode = HELD :: else fi }
	:: atomic { mode == OPEN && answer[me] == REFUSED -> doubt = 0; down() }
	:: atomic { mode == OPEN && awaited[me] != 0 && answer[me] == NONE ->
#ifdef UNACKED
		until = goal;
#endif
		doubt = mine; drop() }
	:: atomic { mode == OPEN && doubt != 0 && awaited[me] == 0 ->
		/* "a record that carries a token of this process lends its revision for another write" */
		read();
		if
		:: k == doubt || k == token ->
			rev = r;
#ifdef READ_MOVES
			until = u;
#endif
			skip
		:: else -> down()
		fi;
		doubt = 0; u = 0; r = 0; k = 0 }
	:: atomic { mode == OPEN && doubt == 0 && CANSEND ->
		clock();                                 /* "until' = max(until, now + horizon)" */
		now = MIN(MAX(until, now + H), T);
		send(now, rev); now = 0 }

	/* The claim is on disk, then the generator is made. */
	:: atomic { mode == HELD -> remember(from); mode = OPEN }
	:: atomic { mode == OPEN && disk[me].fence < until ->
		now = disk[me].fence + 1; remember(now); now = 0 }

	/* "(1) from <= ms(t) < until, (3) ms(t) < fence, (4) (t, s) > (t', s')" */
	:: atomic { mode == OPEN ->
		clock();
		if
		:: ORDER && now >= from && now < until && FENCE ->
			assert(!issued[now]); issued[now] = true; next = now + 1
		:: else
		fi;
		now = 0 }

	/* "A clean stop closes the generator, removes the claim from the state file, and only then
	   lowers until, never below from." */
#ifdef LOWERS_FIRST
	:: atomic { mode == OPEN && CANSEND -> send(next, rev); drop() }
#endif
	:: atomic { mode == OPEN -> mode = CLOSED; doubt = 0; drop() }
#ifndef FORGETS_LAST
	:: atomic { mode == CLOSED -> disk[me].token = 0; disk[me].rev = 0; disk[me].until = 0; disk[me].fence = 0;
		mode = FORGOTTEN }
	:: atomic { mode == FORGOTTEN && CANSEND -> now = END; send(now, rev); now = 0; mode = RELEASING }
#else
	:: atomic { mode == CLOSED && CANSEND -> now = END; send(now, rev); now = 0; mode = FORGOTTEN }
	:: atomic { mode == FORGOTTEN -> disk[me].token = 0; disk[me].rev = 0; disk[me].until = 0; disk[me].fence = 0;
		mode = RELEASING }
#endif
	:: atomic { mode == RELEASING -> down() }

#ifdef COPIED
	:: atomic { mode == DOWN && disk[me].token == 0 && disk[1 - me].token != 0 ->
		disk[me].token = disk[1 - me].token; disk[me].rev = disk[1 - me].rev;
		disk[me].until = disk[1 - me].until; disk[me].fence = disk[1 - me].fence }
#endif
	:: atomic { mode != DOWN && crashes < CRASHES -> crashes++; down() }
	od
}

init { atomic { run JetStream(); byte w; for (w : 0 .. N - 1) { run Worker(w) } } }
