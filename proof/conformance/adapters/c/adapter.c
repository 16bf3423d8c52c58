// The wire in C, on libnats: what a language without a natsid client has to do itself, down to request_ids; and below
// that the adapter for the conformance suite.
#define _GNU_SOURCE
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <nats/nats.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int64_t first, last; } run; // IDs, both ends included
typedef struct { const char *kind; int code; char text[600]; } failure; // kind is NULL after success
#define fail(f, k, c, ...) ((f)->kind = (k), (f)->code = (c), snprintf((f)->text, sizeof (f)->text, __VA_ARGS__))

// decimal reads an ID in its only spelling: no sign, no leading zero, at most 2^63-1.
static bool decimal(const char **p, const char *end, int64_t *n) {
	const char *from = *p;
	for (*n = 0; *p < end && **p >= '0' && **p <= '9'; (*p)++) {
		int digit = **p - '0';
		if (*n > (INT64_MAX - digit) / 10)
			return false;
		*n = *n * 10 + digit;
	}
	return *p > from && (*from != '0' || *p == from + 1);
}

static int by_first(const void *a, const void *b) {
	return ((const run *)a)->first < ((const run *)b)->first ? -1 : 1;
}

// read_runs reads a reply to a request for n IDs. It returns how many runs it has; 0 if the reply is not natsid's, who
// gives no ID twice. runs has room for n.
static int read_runs(const char *p, int len, int64_t n, run *runs) {
	const char *end = p + len;
	int count = 0;
	for (int64_t left = n; left > 0; p++) {
		run r;
		if (!decimal(&p, end, &r.first) || r.first < 1)
			return 0;
		r.last = r.first;
		if (p < end && *p == '-' && (p++, !decimal(&p, end, &r.last) || r.last == r.first))
			return 0;
		if (r.last < r.first || r.last - r.first >= left)
			return 0;
		left -= r.last - r.first + 1;
		runs[count++] = r;
		if (left == 0 ? p != end : p == end || *p != '\n')
			return 0;
	}
	run *sorted = memcpy(malloc(count * sizeof(run)), runs, count * sizeof(run));
	qsort(sorted, count, sizeof(run), by_first);
	for (int i = count - 1; i > 0; i--)
		count = sorted[i - 1].last >= sorted[i].first ? 0 : count;
	free(sorted);
	return count;
}

static const char *kind_of(int code) {
	return code == 400 ? "BadRequest" : code == 404 ? "UnknownTag" : code == 410 ? "UsedUp" : code == 429 ? "Throttled"
	     : code == 503 ? "Unavailable" : "Refused";
}

// refusal reads the error in the headers of a reply: it holds no ID, whatever its body is.
static bool refusal(natsMsg *reply, failure *f) {
	const char *code = NULL, *text = NULL;
	char *rest;
	if (natsMsgHeader_Get(reply, "Nats-Service-Error-Code", &code) != NATS_OK || *code == '\0')
		return false;
	natsMsgHeader_Get(reply, "Nats-Service-Error", &text); // NULL if it is empty
	int n = strtol(code, &rest, 10);
	if (*rest != '\0')
		fail(f, "Refused", 500, "code \"%s\": %s", code, text ? text : "");
	else
		fail(f, kind_of(n), n, "%s", text ? text : "");
	return true;
}

// request_ids requests n IDs, and returns how many runs they are. To repeat it is safe.
static int request_ids(natsConnection *nc, const char *subject, int64_t n, int64_t timeout, run *runs, failure *f) {
	natsMsg *request = NULL, *reply = NULL;
	int count = 0;
	char body[24] = ""; // empty requests one
	if (n != 1)
		snprintf(body, sizeof body, "%" PRId64, n);
	natsMsg_Create(&request, subject, NULL, body, strlen(body));
	natsStatus s = nc ? natsConnection_RequestMsg(&reply, nc, request, timeout) : NATS_CONNECTION_CLOSED;
	if (s != NATS_OK)
		fail(f, s == NATS_NO_RESPONDERS ? "NotServed" : s == NATS_TIMEOUT ? "Deadline"
		      : s == NATS_CONNECTION_CLOSED ? "Closed" : "Other", 0, "%s: %s", subject, natsStatus_GetText(s));
	else if (!refusal(reply, f) &&
	         (count = read_runs(natsMsg_GetData(reply), natsMsg_GetDataLength(reply), n, runs)) == 0)
		fail(f, "NotNatsid", 0, "the reply on %s is not natsid's", subject);
	natsMsg_Destroy(request), natsMsg_Destroy(reply);
	return count;
}

// tag_is_valid keeps a tag from being more than one subject, or several commands.
static bool tag_is_valid(const char *tag) {
	size_t len = strlen(tag);
	if (len == 0 || len > 128 || strcmp(tag, "_natsid") == 0 || strncmp(tag, "_natsid.", 8) == 0)
		return false;
	const char *allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_/=.";
	return strspn(tag, allowed) == len && tag[0] != '.' && tag[len - 1] != '.' && strstr(tag, "..") == NULL;
}

static natsConnection *nc;
static char namespace[40];
static double standard = 5000; // ms, of calls without a time of their own

static double number(const cJSON *params, const char *name, double otherwise) {
	const cJSON *n = cJSON_GetObjectItem(params, name);
	return cJSON_IsNumber(n) ? n->valuedouble : otherwise;
}

static void connect_to(const cJSON *params, failure *f) {
	const char *urls[16];
	const cJSON *server = cJSON_GetObjectItem(params, "servers")->child;
	int n = 0;
	for (; server && n < 16; server = server->next)
		urls[n++] = server->valuestring;
	snprintf(namespace, sizeof namespace, "%s", cJSON_GetObjectItem(params, "namespace")->valuestring);
	standard = number(params, "timeoutMs", 5000);
	natsOptions *o = NULL;
	natsOptions_Create(&o);
	natsOptions_SetServers(o, urls, n);
	natsOptions_SetMaxReconnect(o, -1);
	natsOptions_SetReconnectWait(o, 50);
	natsOptions_SetPingInterval(o, 1000), natsOptions_SetMaxPingsOut(o, 1);
	natsConnection_Destroy(nc), nc = NULL;
	natsStatus s = natsConnection_Connect(&nc, o);
	natsOptions_Destroy(o);
	if (s != NATS_OK)
		fail(f, "Other", 0, "%s", natsStatus_GetText(s));
}

// next is the methods next and nextN. It returns how many runs there are in *runs.
static int next(const cJSON *params, double n, run **runs, failure *f) {
	const cJSON *target = cJSON_GetObjectItem(params, "target"), *business = cJSON_GetObjectItem(target, "business");
	const char *tag = cJSON_GetStringValue(cJSON_GetObjectItem(target, "tag"));
	char subject[200];
	if (n < 1 || n > 1e6 || n != (int64_t)n || (tag && !tag_is_valid(tag))) {
		fail(f, "BadRequest", 400, "not a count, or not a tag");
		return 0;
	}
	if (business)
		snprintf(subject, sizeof subject, "%s.snowflake.%d", namespace, business->valueint);
	else
		snprintf(subject, sizeof subject, tag ? "%s.segment.%s" : "%s.snowflake", namespace, tag);
	*runs = malloc((int64_t)n * sizeof(run));
	return request_ids(nc, subject, n, number(params, "timeoutMs", standard), *runs, f);
}

// serve does what a request says, and writes its result to out.
static void serve(const char *method, const cJSON *params, FILE *out, failure *f) {
	run *runs = NULL;
	if (strcmp(method, "next") == 0) {
		if (next(params, 1, &runs, f) == 1)
			fprintf(out, "{\"id\":\"%" PRId64 "\"}", runs[0].first);
	} else if (strcmp(method, "nextN") == 0) {
		int count = next(params, number(params, "n", 0), &runs, f);
		for (int i = 0; i < count; i++)
			fprintf(out, "%s[\"%" PRId64 "\",\"%" PRId64 "\"]", i ? "," : "{\"runs\":[", runs[i].first, runs[i].last);
		fputs("]}", out);
	} else if (strcmp(method, "describe") == 0)
		fputs("{\"language\":\"C\",\"client\":\"libnats\",\"profile\":\"wire\","
		      "\"methods\":[\"describe\",\"connect\",\"next\",\"nextN\",\"disconnect\"]}", out);
	else if (strcmp(method, "connect") == 0)
		connect_to(params, f), fputs("{}", out);
	else if (strcmp(method, "disconnect") == 0)
		natsConnection_Close(nc), fputs("{}", out);
	else
		fail(f, "Other", -32601, "no method %s", method);
	free(runs);
}

int main(void) {
	char *line = NULL, *result = NULL;
	size_t size = 0, len;
	nats_Open(-1);
	while (getline(&line, &size, stdin) > 0) {
		cJSON *request = cJSON_Parse(line);
		failure f = {0};
		FILE *out = open_memstream(&result, &len);
		serve(cJSON_GetObjectItem(request, "method")->valuestring, cJSON_GetObjectItem(request, "params"), out, &f);
		fclose(out);
		cJSON *text = cJSON_CreateString(f.text);
		char *quoted = cJSON_PrintUnformatted(text);
		printf("{\"jsonrpc\":\"2.0\",\"id\":%.0f,", number(request, "id", 0));
		if (f.kind)
			printf("\"error\":{\"code\":%d,\"message\":%s,\"data\":{\"kind\":\"%s\",\"code\":%d,\"text\":%s}}}\n",
			       f.code < 0 ? f.code : -32000, quoted, f.kind, f.code, quoted);
		else
			printf("\"result\":%s}\n", result);
		fflush(stdout);
		free(result), free(quoted), cJSON_Delete(text), cJSON_Delete(request);
	}
	natsConnection_Destroy(nc);
}
