# Tests and demonstration against private servers; see scripts/check.sh.

WITH_CUDA ?= auto
VARIABLES = PG_CONFIG WITH_CUDA SUITES ENGINE PRELOAD VERIFY SANITIZE TESTS KEEP
SETTINGS = $(foreach v,$(VARIABLES),$(if $($(v)),$(v)='$($(v))'))

.PHONY: check demo bootstrap

# install what is missing (as root), or say what is
bootstrap:
	@PG_CONFIG='$(PG_CONFIG)' sh $(srcdir)/scripts/bootstrap.sh $(filter demo,$(MAKECMDGOALS))

check: bootstrap
	@$(SETTINGS) bash $(srcdir)/scripts/check.sh

demo: bootstrap
	@$(SETTINGS) bash $(srcdir)/scripts/demo.sh
