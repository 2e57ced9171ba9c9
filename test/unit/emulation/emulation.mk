# Compiles kernels for emulation.h.  Needs the headers of the CUDA
# toolkit, no GPU.

EMULATION = test/unit/emulation
EMULATION_DIR = build/emulation
EMULATION_FLAGS = -std=gnu++17 -O2 -g -U_FORTIFY_SOURCE -pthread -fPIE -ffp-contract=off -Wno-attributes -DEMULATION \
	-include $(srcdir)/$(EMULATION)/emulation.h -I$(srcdir)/$(EMULATION) -I$(srcdir) \
	-I$(srcdir)/src -I$(srcdir)/test/bench -isystem $(CUDA_HOME)/include
EMULATION_HEADERS = $(wildcard $(srcdir)/kernels/*/*.h $(srcdir)/kernels/*/*.cuh $(srcdir)/src/engine/*.h $(srcdir)/src/engine/*/*.h \
	$(srcdir)/test/bench/embedding*.h) $(shell find $(srcdir)/$(EMULATION) -name '*.*h')

$(EMULATION_DIR)/%.o: $(srcdir)/%.cu $(EMULATION_HEADERS)
	@mkdir -p $(@D)
	$(CXX) $(EMULATION_FLAGS) -x c++ -c -o $@ $<

$(EMULATION_DIR)/%.o: $(srcdir)/%.cpp $(EMULATION_HEADERS)
	@mkdir -p $(@D)
	$(CXX) $(EMULATION_FLAGS) -c -o $@ $<
