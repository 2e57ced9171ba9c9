# Tests, demonstration and pages by private servers; see scripts/check.sh, scripts/stress.sh,
# scripts/demo.sh and scripts/documents.sh.

VARIABLES = PG_CONFIG WITH_CUDA SUITES QUICK ENGINE PRELOAD VERIFY METHOD CPU_PARTS DEVICES SANITIZE COVERAGE TESTS KEEP \
	CUDA_ARCHS BUILT_SOURCES JOBS JOB_SECONDS FIRST_FAILURE EMULATION PYTHON PG_TESTS OLD_PG_CONFIG \
	STRESS_SECONDS FORMS_SECONDS MINUTES SEED CLIENTS ROWS PATIENCE STANDBY LENIENT FORMS
SETTINGS = $(foreach v,$(VARIABLES),$(if $($(v)),$(v)='$($(v))'))

.PHONY: check check-quick stress demo documents

# a minute or two: something of every folder
check-quick:
	@$(MAKE) --no-print-directory -f $(srcdir)/check.mk srcdir=$(srcdir) PG_CONFIG='$(PG_CONFIG)' QUICK=yes check

# first install what is missing (as root), or say what is
check stress demo documents:
	@PG_CONFIG='$(PG_CONFIG)' sh $(srcdir)/scripts/bootstrap.sh $@
	@$(SETTINGS) bash $(srcdir)/scripts/$@.sh
