/* Options by prefix: -<prefix>krylith_<option>, one for each option of Krylith. */
#include "krylith_petsc.h"

/* What the KSP itself has a name for. */
static const char *const OF_KSP[][2] = {
    {"rtol", "-ksp_rtol"}, {"atol", "-ksp_atol"}, {"max_iters", "-ksp_max_it"}, {"maxiter", "-ksp_max_it"}};

/* What belongs to the iterations of a whole solve, which a preconditioner does not make. */
static const char *const OF_SOLVE[] = {
    "method", "restart",   "orthogonalization", "reductions", "form",        "s",
    "basis",  "criterion", "relative_to",       "time_limit", "equilibrate", "matching",
    "rtol",   "atol",      "max_iters",         "maxiter"};

PetscErrorCode KrylithOptionsDestroy(KrylithFollower *f) {
  PetscFunctionBegin;
  PetscCall(PetscFree(f->options));
  PetscCall(PetscFree(f->nullspace));
  PetscCall(PetscFree(f->near_nullspace));
  PetscCall(PetscFree(f->names));
  f->block = 0;
  f->place = KRYLITH_ANYWHERE;
  f->asks_fields = f->other_criterion = f->relative_to_r0 = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Refuses an option that belongs elsewhere. */
static PetscErrorCode check_place(KrylithFollower *f, const char name[], const char said[]) {
  PetscBool same;

  PetscFunctionBegin;
  for (size_t k = 0; f->of_ksp && k < sizeof(OF_KSP) / sizeof(OF_KSP[0]); k++) {
    PetscCall(PetscStrcmp(name, OF_KSP[k][0], &same));
    PetscCheck(!same, PETSC_COMM_SELF, PETSC_ERR_USER_INPUT, "`%s` is one of the KSP itself; give %s", said,
               OF_KSP[k][1]);
  }
  for (size_t k = 0; !f->of_ksp && k < sizeof(OF_SOLVE) / sizeof(OF_SOLVE[0]); k++) {
    PetscCall(PetscStrcmp(name, OF_SOLVE[k], &same));
    PetscCheck(!same, PETSC_COMM_SELF, PETSC_ERR_USER_INPUT,
               "`%s` has no effect on a preconditioner; whole solves are those of -ksp_type krylith, or "
               "inside another KSP of -pc_type ksp",
               said);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Returns a flag of PETSc as one of Krylith, or a null pointer. */
static const char *flag_of(const char value[]) {
  if (!strcmp(value, "1") || !strcmp(value, "yes") || !strcmp(value, "on"))
    return "true";
  if (!strcmp(value, "0") || !strcmp(value, "no") || !strcmp(value, "off"))
    return "false";
  return NULL;
}

/* Returns the place that the option `device` names: the number of one GPU, or another place. */
static PetscInt place_of(const char device[]) {
  char *end;
  long number;

  if (!strcmp(device, "auto"))
    return KRYLITH_ANYWHERE;
  if (!strcmp(device, "cuda"))
    return 0;
  if (strncmp(device, "cuda:", 5))
    return KRYLITH_ELSEWHERE;
  number = strtol(device + 5, &end, 10);
  return *end || end == device + 5 ? KRYLITH_ELSEWHERE : (PetscInt)number;
}

/* Reads one option. Those of the solver are added to `text`. */
static PetscErrorCode take(KrylithFollower *f, const char name[], const char said[], const char *value,
                           char text[], size_t room) {
  char *pair;
  size_t length;
  char **place = NULL;
  PetscBool block;

  PetscFunctionBegin;
  PetscCall(check_place(f, name, said));
  if (!strcmp(name, "nullspace"))
    place = &f->nullspace;
  if (!strcmp(name, "near_nullspace"))
    place = &f->near_nullspace;
  if (!strcmp(name, "fields"))
    place = &f->names;
  block = !strcmp(name, "block") ? PETSC_TRUE : PETSC_FALSE;
  PetscCheck((value && *value) || (!place && !block), PETSC_COMM_SELF, PETSC_ERR_USER_INPUT,
             "`%s` has no value", said);
  if (block) {
    char *end;
    const long number = strtol(value, &end, 10);

    PetscCheck(!*end && number >= 1 && number <= KRYLITH_MAX_BLOCK, PETSC_COMM_SELF, PETSC_ERR_USER_INPUT,
               "`%s` is %s; expected a number from 1 to %d", said, value, KRYLITH_MAX_BLOCK);
    f->block = (PetscInt)number;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (place) {
    const char *known = place == &f->nullspace ? "constant" : place == &f->near_nullspace ? "rigid" : value;

    PetscCheck(
        !strcmp(value, known), PETSC_COMM_SELF, PETSC_ERR_USER_INPUT,
        "`%s` is %s; expected %s; other vectors are those of MatSetNullSpace and MatSetNearNullSpace", said,
        value, known);
    PetscCall(PetscStrallocpy(value, place));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (!value || !*value)
    value = "true"; /* a flag */
  PetscCall(PetscStrlen(value, &length));
  PetscCall(PetscMalloc1(length + strlen(name) + 8, &pair));
  (void)sprintf(pair, "%s=%s", name, value);
  if (krylith_check_options(pair) != KRYLITH_OK && flag_of(value)) {
    (void)sprintf(pair, "%s=%s", name, flag_of(value));
    if (krylith_check_options(pair) != KRYLITH_OK)
      (void)sprintf(pair, "%s=%s", name, value);
  }
  if (krylith_check_options(pair) != KRYLITH_OK) {
    PetscCall(PetscFree(pair));
    SETERRQ(PETSC_COMM_SELF, PETSC_ERR_USER_INPUT, "`%s`: %s", said, krylith_last_error());
  }
  if (!strcmp(name, "precond") && (!strncmp(value, "split", 5) || !strncmp(value, "cpr", 3)))
    f->asks_fields = PETSC_TRUE;
  if (!strcmp(name, "criterion") && strcmp(value, "residual"))
    f->other_criterion = PETSC_TRUE;
  if (!strcmp(name, "device"))
    f->place = place_of(value);
  if (!strcmp(name, "relative_to") && !strcmp(value, "r0"))
    f->relative_to_r0 = PETSC_TRUE;
  if (strcmp(pair, "device=auto")) { /* the default, to which a matrix on a GPU adds its place */
    PetscCall(PetscStrlcat(text, pair, room));
    PetscCall(PetscStrlcat(text, " ", room));
  }
  PetscCall(PetscFree(pair));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Reads the options with the prefix of the PC or KSP; new options need a new set-up. */
PetscErrorCode KrylithOptionsGet(KrylithFollower *f) {
  KrylithFollower before = *f;
  const char *prefix = f->owner->prefix ? f->owner->prefix : "";
  char start[256], said[512], name[128], *all, *at, *text;
  size_t room, length;

  PetscFunctionBegin;
  PetscCall(PetscSNPrintf(start, sizeof(start), "-%skrylith_", prefix));
  PetscCall(PetscStrlen(start, &length));
  PetscCall(PetscOptionsGetAll(f->owner->options, &all));
  PetscCall(PetscStrlen(all, &room));
  room += 16 * KRYLITH_MAX_OPTIONS;
  PetscCall(PetscCalloc1(room, &text));
  f->options = f->nullspace = f->near_nullspace = f->names = NULL;
  f->block = 0;
  f->place = KRYLITH_ANYWHERE;
  f->asks_fields = f->other_criterion = f->relative_to_r0 = PETSC_FALSE;
  for (at = strstr(all, start); at; at = strstr(at + 1, start)) {
    const char *value;
    PetscBool set;
    size_t end = 0;

    if (at != all && at[-1] != ' ')
      continue;
    while (at[length + end] && at[length + end] != ' ' && end + 1 < sizeof(name))
      end++;
    PetscCall(PetscStrncpy(name, at + length, end + 1));
    PetscCall(PetscSNPrintf(said, sizeof(said), "%s%s", start, name));
    PetscCall(PetscOptionsFindPair(f->owner->options, NULL, said, &value, &set));
    if (set)
      PetscCall(take(f, name, said, value, text, room));
  }
  PetscCall(PetscFree(all));
  PetscCall(PetscStrallocpy(text, &f->options));
  PetscCall(PetscFree(text));
#define SAME(part) (!f->part == !before.part && (!f->part || !strcmp(f->part, before.part)))
  if (!SAME(options) || !SAME(nullspace) || !SAME(near_nullspace) || !SAME(names) ||
      f->block != before.block)
    PetscCall(KrylithForget(f));
#undef SAME
  PetscCall(PetscFree(before.options));
  PetscCall(PetscFree(before.nullspace));
  PetscCall(PetscFree(before.near_nullspace));
  PetscCall(PetscFree(before.names));
  PetscFunctionReturn(PETSC_SUCCESS);
}
